# ggml for x86-64 with AVX2, the most that QEMU emulates. Each is named: CMake's cache has them off from the first
# configuration, which was for this machine's CPU.
set(GGML_NATIVE OFF)
foreach(feature SSE42 AVX AVX2 BMI2 FMA F16C)
    set(GGML_${feature} ON)
endforeach()
