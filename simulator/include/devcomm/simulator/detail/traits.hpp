/// \file traits.hpp
/// Which types the shim's templates take.
#pragma once

#include <type_traits>

namespace devcomm::simulator::detail {

/// Types that one GPU instruction loads: trivially copyable, of 1 to 16 bytes.
template <class T>
using loadable =
    std::enable_if_t<std::is_trivially_copyable_v<T> && sizeof(T) <= 16 && (sizeof(T) & (sizeof(T) - 1)) == 0>;

}  // namespace devcomm::simulator::detail
