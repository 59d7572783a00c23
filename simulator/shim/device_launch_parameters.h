/// \file device_launch_parameters.h
/// `threadIdx`, `blockIdx`, `blockDim`, `gridDim`.
#pragma once

#include <cuda_runtime.h>
