/// \file network_step.hpp
/// The steps of the network's proxy, named so that a simulator can tell which of them need which.
#pragma once

#include <cstdint>
#include <functional>

namespace devcomm::host::detail {

/// One thing that the proxy of a rank can do next. Steps of different operations need only what `gin::context`
/// promises:
///
/// - An operation is taken after the one before it of its context, once a kernel has posted it.
/// - A part is read after the parts before it, and written once it has been read.
/// - A signal changes when the operation's own data has arrived; where it `covers_earlier`, also that of all earlier
///   puts of its context to the same peer, and after the signals of those among them that cover earlier ones too.
/// - A fence is over after all steps of earlier operations of its context to the same peer.
///
/// Steps of one operation that differ in `offset` alone share what counts its parts.
struct network_step {
  enum class kind : std::uint8_t {
    take,    ///< reads the descriptor
    read,    ///< from the source, the part at `offset`
    write,   ///< to the destination, the part at `offset`
    finish,  ///< what an operation without data does in place of these; a put does it twice
    signal,  ///< changes the peer's signal
  };
  kind what;
  std::uint32_t context;
  std::uint64_t number;  ///< of the operation in its context
  std::uint64_t offset;

  // What the operation is; not known before it is taken.
  std::uint32_t peer;
  bool puts;            ///< its data goes to the peer
  bool is_fence;        ///< waits for all earlier operations
  bool covers_earlier;  ///< it has a signal, which covers earlier operations
  bool sets_signal;     ///< whatever it was; else what steps change they add to, or count
  bool is_last;         ///< nothing is left to do after this step
};

/// What the step of an index below the count is.
using describe_step = std::function<network_step(std::uint32_t)>;
/// Chooses which of so many steps, at least one, is next: its index, or `no_step` for none of them now.
using choose_next = std::function<std::uint32_t(std::uint32_t count, const describe_step& what)>;
inline constexpr std::uint32_t no_step = ~std::uint32_t{0};

/// Puts back what it was made for, as it was then.
using restore_state = std::function<void()>;

/// What a background task does.
struct proxy_work {
  /// Does a part of it; whether there was any, or copies are under way. Does not throw.
  std::function<bool(const choose_next&)> step;
  /// Called, as what it returns, while nothing is left to do and no kernel runs: keeps all that steps change and
  /// kernels see, apart from windows. Null where that is not possible.
  std::function<restore_state()> keep;
};

}  // namespace devcomm::host::detail
