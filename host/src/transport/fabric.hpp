/// \file fabric.hpp
/// The port to a fabric: what the transport between processes needs of libfabric, and what tests imitate.
#pragma once

#include <devcomm/host/error.hpp>
#include <devcomm/host/properties.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace devcomm::host::detail {

/// Where an endpoint is reached: opaque bytes.
struct fabric_address {
  std::uint32_t bytes = 0;
  std::array<std::byte, 124> name{};
};

/// A fabric does not take memory; `code` says why to a peer, whose fabric has the text.
class registration_error : public system_error {
 public:
  registration_error(const std::string& what, int code) : system_error(what), code_(code) {}
  [[nodiscard]] int code() const noexcept { return code_; }

 private:
  int code_;
};

/// Memory that the fabric reads and writes; it does not after destruction.
class fabric_region {
 public:
  virtual ~fabric_region() = default;
  /// By which peers name it.
  [[nodiscard]] virtual std::uint64_t key() const = 0;
  /// What peers add to offsets in it.
  [[nodiscard]] virtual std::uint64_t base() const = 0;
};

/// Memory of a peer.
struct remote_address {
  std::uint64_t key = 0;
  std::uint64_t address = 0;
};

/// An operation is over.
struct fabric_completion {
  std::uint64_t token = 0;
  std::size_t bytes = 0;  ///< that were received
  std::string error;      ///< empty where it was done
  /// Where there is one, none of this endpoint's operations is over: a peer's write with this name has arrived.
  std::optional<std::uint32_t> arrived{};
};

/// An endpoint, of which every rank of a communicator has at least one. One thread at a time calls it. Nothing is
/// ordered, neither messages nor writes nor their completions, except by completions.
class fabric {
 public:
  virtual ~fabric() = default;

  /// "libfabric's provider tcp;ofi_rxm", for messages.
  [[nodiscard]] virtual std::string name() const = 0;
  /// The network card, as the fabric calls it; empty where it has none.
  [[nodiscard]] virtual std::string card() const { return {}; }
  [[nodiscard]] virtual fabric_address address() const = 0;
  /// Peers are reached by the numbers of their addresses from here on, but those whose address is empty: called again
  /// with that, and the others as they were.
  virtual void connect(std::span<const fabric_address> peers) = 0;
  /// Whether it moves payload from and to the memory of devices by itself, and never by calls that wait for kernels.
  [[nodiscard]] virtual capability to_devices() const = 0;
  /// Memory of a window or of bounce buffers, which peers may reach; of `device`, where it is not the host's. Throws
  /// `registration_error`.
  [[nodiscard]] virtual std::unique_ptr<fabric_region> add_memory(char* base, std::size_t bytes,
                                                                  std::optional<int> device) = 0;
  /// Memory of messages and of payload on its way, which no peer may reach. Throws `registration_error`.
  [[nodiscard]] virtual std::unique_ptr<fabric_region> add_buffers(std::span<std::byte> memory) = 0;
  /// Bytes that a write or a read has at most.
  [[nodiscard]] virtual std::uint64_t largest_transfer() const = 0;
  /// Bytes that a message has at most.
  [[nodiscard]] virtual std::uint64_t largest_message() const = 0;
  /// What the code of a `registration_error` means, a peer's too.
  [[nodiscard]] virtual std::string text_of(int code) const = 0;

  // Each returns false where the fabric takes no more now: to be tried again after `poll`. What it takes ends with a
  // completion of `token`. They throw `system_error` where it can never be done. `region` has the memory on this side.

  /// A message goes into a buffer that the peer gave to `receive`. Complete when `message` may be written again, no
  /// matter what the peer does.
  [[nodiscard]] virtual bool send(int peer, std::span<const std::byte> message, const fabric_region& region,
                                  std::uint64_t token) = 0;
  /// A message that is longer than the buffer completes with an error.
  [[nodiscard]] virtual bool receive(std::span<std::byte> buffer, const fabric_region& region, std::uint64_t token) = 0;
  /// Whether writes can carry names that peers receive.
  [[nodiscard]] virtual bool names_writes() const = 0;
  /// Complete when the peer's threads can see the data. Where it has a name: complete when `source` may be written
  /// again, and the peer's `poll` returns the name when its threads can see the data in its host memory.
  [[nodiscard]] virtual bool write(int peer, std::span<const char> source, const fabric_region& region,
                                   remote_address destination, std::uint64_t token,
                                   std::optional<std::uint32_t> name) = 0;
  /// Complete when this process's threads can see the data.
  [[nodiscard]] virtual bool read(int peer, std::span<char> destination, const fabric_region& region,
                                  remote_address source, std::uint64_t token) = 0;

  /// Makes progress, for peers too. Returns how many of `over` it filled in.
  [[nodiscard]] virtual std::size_t poll(std::span<fabric_completion> over) = 0;
};

}  // namespace devcomm::host::detail
