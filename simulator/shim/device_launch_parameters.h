/// \file device_launch_parameters.h
/// `threadIdx`, `blockIdx`, `blockDim`, `gridDim`.
#pragma once
#define __DEVICE_LAUNCH_PARAMETERS_H__  // the toolkit's own file is not read beside it

#include <cuda_runtime.h>
