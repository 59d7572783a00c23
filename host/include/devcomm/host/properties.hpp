/// \file properties.hpp
/// What a communicator can do, with the reason for each answer.
#pragma once

#include <string>

namespace devcomm::host {

/// Whether something is available, and why.
struct capability {
  bool available = false;
  std::string reason;  ///< why not; for what is available, by what means
};

struct properties {
  std::string backend;  ///< "cuda" or "simulator"
  std::string device_name;
  int multiprocessors = 0;
  capability lsa;   ///< load/store access to at least one peer
  capability rail;  ///< LSA teams of one size, in blocks or dealt in turn, so that `rail()` is a team
  /// NVLink between hosts: by NVML, or as `DEVCOMM_NVLINK_DOMAIN` says
  capability nvlink_domain;
  capability ll128;  ///< lines of 128 bytes stay whole between the ranks of the LSA team
  capability file_descriptor_handles;
  capability fabric_handles;
  capability cuda_ipc;     ///< `register_memory` across processes
  capability multicast;    ///< NVLink multicast among the LSA team; without it multimem is in software
  capability network;      ///< GIN
  capability pinned_host;  ///< windows in pinned host memory
  capability own_device;   ///< no other rank of this host uses the GPU
  capability timing;       ///< whether kernel times are those of a GPU
};

/// One line for each capability.
[[nodiscard]] std::string to_string(const properties& p);

}  // namespace devcomm::host
