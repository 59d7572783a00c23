"""A kernel that nvcc compiles into an extension of PyTorch, for programs that have one already. Needs GPUs and nvcc.

torchrun --standalone --nproc-per-node=2 torch_extension.py
"""

import devcomm
import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <c10/cuda/CUDAStream.h>
#include <devcomm/devcomm.cuh>
#include <torch/extension.h>

__global__ void all_reduce(devcomm::device_comm comm, devcomm::sym_ptr<float> input, float* output, int count) {
  devcomm::lsa::barrier_session barrier{devcomm::block{}, comm, blockIdx.x};
  barrier.sync(devcomm::memory_order::acq_rel);  // all inputs are there
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    float sum = 0;
    for (int rank = 0; rank < comm.lsa_size; ++rank) sum += input.lsa(rank)[i];
    output[i] = sum;
  }
  barrier.sync(devcomm::memory_order::acq_rel);  // they may change again
}

template <class Argument>
Argument from(const std::string& bytes) {
  Argument value;
  TORCH_CHECK(bytes.size() == sizeof value, "compile this with the headers of devcomm.include_path()");
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

void run(const py::bytes& comm, const py::bytes& input, torch::Tensor output) {
  all_reduce<<<4, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
      from<devcomm::device_comm>(comm), from<devcomm::sym_ptr<float>>(input), output.data_ptr<float>(),
      static_cast<int>(output.numel()));
}
"""


def rank(comm: devcomm.Communicator) -> None:
    if comm.rank != 0:
        comm.barrier()  # the first rank compiles for all
    extension = load_inline(
        "devcomm_example",
        cpp_sources="void run(const py::bytes& comm, const py::bytes& input, torch::Tensor output);",
        cuda_sources=SOURCE,
        functions=["run"],
        extra_include_paths=[devcomm.include_path()],
    )
    if comm.rank == 0:
        comm.barrier()
    device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(4).whole_world())
    source = comm.empty(1000, "float32")
    torch.from_dlpack(source).fill_(comm.rank + 1)
    output = torch.empty(1000, device=comm.device)
    extension.run(device_comm.kernel_argument(), source.kernel_argument(), output)
    comm.synchronize()
    comm.check()
    assert (output == comm.size * (comm.size + 1) // 2).all()
    print(f"rank {comm.rank} of {comm.size}: right")


if __name__ == "__main__":
    with devcomm.connect() as communicator:
        rank(communicator)
