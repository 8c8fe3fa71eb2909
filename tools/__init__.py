"""The tooling of the repository: `python3 -m tools VERB`. Never shipped."""
