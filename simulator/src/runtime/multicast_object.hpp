/// \file multicast_object.hpp
/// Multicast objects of the simulated driver: who takes part and what each has bound, in memory that all processes
/// share.
#pragma once

#include "gpu/multicast.hpp"

#include <device/backend.hpp>
#include <util/unique_fd.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace devcomm::simulator::detail {

/// Physical memory that is a file.
class file_memory {
 public:
  virtual ~file_memory() = default;
  [[nodiscard]] virtual int file() const noexcept = 0;
  [[nodiscard]] virtual std::size_t bytes() const noexcept = 0;
};

/// The same in all processes.
[[nodiscard]] std::uint64_t name_of_file(int descriptor);

/// Says what CUDA's driver would refuse or wait for: binding and mapping before every device was added, a device added
/// twice, sizes and offsets between granules.
class multicast_file final : public host::detail::multicast_object {
 public:
  static constexpr std::size_t granularity = 65536;

  [[nodiscard]] static std::unique_ptr<multicast_file> create(int members, std::size_t bytes);
  [[nodiscard]] static std::unique_ptr<multicast_file> open(host::detail::unique_fd file, std::size_t bytes);
  ~multicast_file() override;
  multicast_file(const multicast_file&) = delete;
  multicast_file& operator=(const multicast_file&) = delete;

  [[nodiscard]] int export_descriptor() override;
  [[nodiscard]] std::vector<std::byte> export_bytes() override;
  void add_device(int device) override;
  void bind(int device, std::size_t offset, host::detail::physical_memory& memory, std::size_t bytes) override;

  /// Throws unless that many bytes of it may be mapped now.
  void check_mapping(std::size_t bytes) const;
  [[nodiscard]] multicast_state* state() const noexcept { return state_; }

 private:
  explicit multicast_file(host::detail::unique_fd file);

  host::detail::unique_fd file_;
  multicast_state* state_;
  std::vector<std::pair<std::uint64_t, std::size_t>> bound_;  ///< here: member, offset
};

}  // namespace devcomm::simulator::detail
