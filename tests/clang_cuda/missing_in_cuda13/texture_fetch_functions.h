// Clang 19's CUDA wrapper includes this header, which CUDA 13 no longer has: "texture_fetch_functions.h
// file not found". An empty one stands in. It can go with the first Clang that supports CUDA 13.
