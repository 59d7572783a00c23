/// \file watched.hpp
/// Whether a sanitizer or devcomm's race detector watches the program, which makes each access many times slower.
#pragma once

namespace test {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool is_watched = true;
#elif defined(__has_feature)
#  if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
inline constexpr bool is_watched = true;
#  else
inline constexpr bool is_watched = false;
#  endif
#else
inline constexpr bool is_watched = false;
#endif

}  // namespace test
