/// \file cuda_pipeline.h
/// CUDA's pipelines: libcu++ has their classes.
#pragma once

#include <cuda_pipeline_primitives.h>
