"""The OpenAI-compatible endpoints, asked by OpenAI's own client."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam

from tests.build.programs import Program
from tests.build.servers import serving
from tools import models

SMALL = ("-c", "2048", "-t", "1")  # two threads that wait for each other are slow where others work, too

# The real model completes texts and was not taught to chat: a conversation is one text, and it goes on with it.
PLAIN = "{% for message in messages %}{{ message.content }}{% endfor %}"

# How a model that was taught to call functions has it.
CALLING = """\
{%- if tools %}<|im_start|>system
Call one of these functions:
<tools>
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}</tools>
For each call return JSON within <tool_call></tool_call>:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call><|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{% if message.content %}{{ message.content }}{% endif %}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

WEATHER: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
            "required": ["city"],
        },
    },
}

# It follows an example better than an instruction.
CALLED_BEFORE: list[ChatCompletionMessageParam] = [
    {"role": "user", "content": "What is the weather in Paris?"},
    {
        "role": "assistant",
        "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "1", "content": "Rain"},
    {"role": "user", "content": "What is the weather in Rome?"},
]


def client(url: str, **more: Any) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, **more)


@pytest.fixture(scope="module")
def chat(ours: Program, node: str) -> Iterator[openai.OpenAI]:
    flags = ("--server", "--numa-node", node, "-m", models.real_model(), *SMALL, "--alias", "gemma")
    with serving(ours, *flags, "--chat-template", PLAIN, "--tools", "get_info,read_file") as url:
        yield client(url)


@pytest.mark.real_model
def test_models(chat: openai.OpenAI) -> None:
    (model,) = chat.models.list()
    assert (model.id, model.object) == ("gemma", "model")
    assert chat.models.list().data[0].id == "gemma"


@pytest.mark.real_model
def test_completion_knows_paris(chat: openai.OpenAI) -> None:
    prompt = "Paris is the capital and most populous city of"
    answer = chat.completions.create(model="gemma", prompt=prompt, max_tokens=4, temperature=0)
    assert "France" in answer.choices[0].text
    assert answer.usage
    assert answer.usage.completion_tokens == 4


@pytest.mark.real_model
def test_chat(chat: openai.OpenAI) -> None:
    answer = chat.chat.completions.create(
        model="gemma",
        messages=[
            {"role": "system", "content": "Rome is the capital of Italy. "},
            {"role": "user", "content": "Paris is the capital of"},
        ],
        max_tokens=4,
        temperature=0,
    )
    assert answer.choices[0].message.role == "assistant"
    assert "France" in (answer.choices[0].message.content or "")
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage
    assert answer.usage.completion_tokens == 4
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 4


@pytest.mark.real_model
def test_stream_says_the_same_in_pieces(chat: openai.OpenAI) -> None:
    asked: dict[str, Any] = {
        "model": "gemma",
        "messages": [{"role": "user", "content": "1, 2, 3, 4, 5, 6, 7, 8, 9,"}],
        "max_tokens": 16,
        "temperature": 0,
        "extra_body": {"cache_prompt": False},
    }
    whole = chat.chat.completions.create(**asked).choices[0].message.content
    assert "10, 11" in (whole or "")
    pieces = list(chat.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    texts = [piece.choices[0].delta.content for piece in pieces if piece.choices]
    assert "".join(text or "" for text in texts) == whole
    assert len([text for text in texts if text]) > 8
    assert [piece.choices[0].finish_reason for piece in pieces if piece.choices][-1] == "length"
    assert pieces[-1].usage
    assert pieces[-1].usage.completion_tokens == 16


@pytest.mark.real_model
def test_stream_can_be_left(chat: openai.OpenAI) -> None:
    """The server goes on with others after a client has gone in the middle."""
    with chat.completions.create(model="gemma", prompt="1, 2, 3,", max_tokens=500, stream=True) as stream:
        next(iter(stream))
    assert chat.completions.create(model="gemma", prompt="1, 2, 3,", max_tokens=1).choices


@pytest.mark.real_model
def test_tool_is_called(ours: Program, node: str) -> None:
    flags = ("--server", "--numa-node", node, "-m", models.real_model(), *SMALL, "--chat-template", CALLING)
    with serving(ours, *flags) as url:
        answer = client(url).chat.completions.create(
            model="gemma",
            messages=CALLED_BEFORE,
            tools=[WEATHER],
            tool_choice="required",
            max_tokens=64,
            temperature=0,
        )
    calls = answer.choices[0].message.tool_calls
    assert calls
    assert calls[0].type == "function"
    assert calls[0].function.name == "get_weather"
    assert json.loads(calls[0].function.arguments) == {"city": "Rome"}


@pytest.mark.real_model
def test_tools_of_the_server_are_listed(chat: openai.OpenAI) -> None:
    """Not OpenAI's: llama.cpp's own list, beside /v1."""
    listed = chat.with_options(base_url=str(chat.base_url).replace("/v1/", "/")).get("/tools", cast_to=object)
    assert isinstance(listed, list)
    assert sorted(tool["tool"] for tool in listed) == ["get_info", "read_file"]


@pytest.mark.real_model
def test_json_schema_holds(chat: openai.OpenAI) -> None:
    number = {"type": "integer", "minimum": 1, "maximum": 9}
    schema: dict[str, object] = {"type": "object", "properties": {"n": number}, "required": ["n"]}
    answer = chat.chat.completions.create(
        model="gemma",
        messages=[{"role": "user", "content": "A number, please."}],
        response_format={"type": "json_schema", "json_schema": {"name": "number", "schema": schema}},
        max_tokens=64,
        temperature=0,
    )
    assert 1 <= json.loads(answer.choices[0].message.content or "")["n"] <= 9


@pytest.mark.real_model
def test_bad_request_is_the_client_s_error(chat: openai.OpenAI) -> None:
    messages: Any = [{"role": "user", "content": 5}]
    with pytest.raises(openai.BadRequestError):
        chat.chat.completions.create(model="gemma", messages=messages)


# --- what needs no model that knows anything -------------------------------------------------------------------------


def test_embeddings(ours: Program, node: str, model: Path) -> None:
    with serving(ours, "--server", "--numa-node", node, "-m", model, "-c", "256", "--embeddings", "--pooling", "mean") as url:
        answer = client(url).embeddings.create(model="any", input=["one day", "one day", "ban"])
        plain = client(url).embeddings.create(model="any", input="ban", encoding_format="float")
    same, again, other = (item.embedding for item in answer.data)
    assert [item.index for item in answer.data] == [0, 1, 2]
    assert math.isclose(math.sqrt(sum(x * x for x in same)), 1, rel_tol=1e-3)
    assert same == pytest.approx(again, abs=1e-5)
    assert same != pytest.approx(other, abs=1e-2)
    assert plain.data[0].embedding == pytest.approx(other, abs=1e-4)
    assert answer.usage.prompt_tokens > 0


def test_key_is_asked_for(ours: Program, node: str, model: Path) -> None:
    with serving(ours, "--server", "--numa-node", node, "-m", model, "-c", "256", "--api-key", "secret") as url:
        with pytest.raises(openai.AuthenticationError):
            client(url).completions.create(model="any", prompt="one", max_tokens=1)
        known = client(url).with_options(api_key="secret")
        assert known.completions.create(model="any", prompt="one", max_tokens=1).choices
