# ggml for x86-64 with AVX2, the most that QEMU emulates.
set(GGML_NATIVE OFF)
