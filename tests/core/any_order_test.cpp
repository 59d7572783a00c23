#include <devcomm/any_order.hpp>

#include <catch2/catch_test_macros.hpp>

#include <atomic>
#include <type_traits>

using namespace devcomm;

namespace {

namespace of_cpp17 {  // as libcu++ has them before C++20
enum memory_order {
  memory_order_relaxed,
  memory_order_consume,
  memory_order_acquire,
  memory_order_release,
  memory_order_acq_rel,
  memory_order_seq_cst
};
}  // namespace of_cpp17

enum thread_scope {
  thread_scope_system = 0,
  thread_scope_device = 1,
  thread_scope_block = 2,
  thread_scope_thread = 10
};

constexpr memory_order taken(any_order order) { return order; }

}  // namespace

static_assert(taken(memory_order::acq_rel) == memory_order::acq_rel);
static_assert(taken(std::memory_order::relaxed) == memory_order::relaxed);
static_assert(taken(std::memory_order_consume) == memory_order::acquire);
static_assert(taken(std::memory_order_acquire) == memory_order::acquire);
static_assert(taken(std::memory_order::release) == memory_order::release);
static_assert(taken(std::memory_order_acq_rel) == memory_order::acq_rel);
static_assert(taken(of_cpp17::memory_order_release) == memory_order::release);
static_assert(taken(of_cpp17::memory_order_acquire) == memory_order::acquire);
static_assert(to_scope(thread_scope_system) == scope::system && to_scope(thread_scope_device) == scope::device);
static_assert(to_scope(thread_scope_block) == scope::block && to_scope(thread_scope_thread) == scope::block);
static_assert(to_scope(scope::device) == scope::device);

// Nothing else is an order, above all no number and no scope.
static_assert(!std::is_convertible_v<int, any_order> && !std::is_convertible_v<scope, any_order>);
static_assert(!std::is_convertible_v<thread_scope, any_order> && !std::is_convertible_v<bool, any_order>);

TEST_CASE("calls take the orders of the standard library and of libcu++") {
  CHECK(taken(std::memory_order::seq_cst) == memory_order::acq_rel);  // and are refused in checked mode
}
