/// \file ptr.cuh
/// Pointers to the same element on all ranks at once, through NVLink multicast or, where there is none, in software.
///
///     multimem::ptr<float> tensor(window);                    // or window.multimem<float>(), or a sym_ptr's
///     const pack<float> total = (tensor + 4 * i).load_reduce<sum>();  // the switch adds all ranks' packs
///     (tensor + 4 * i).store(total);                          // all ranks get it
#pragma once

#include <devcomm/any_order.hpp>
#include <devcomm/assert.hpp>
#include <devcomm/multimem/forms.cuh>
#include <devcomm/multimem/software.cuh>
#include <devcomm/multimem/window_record.hpp>
#include <devcomm/sym_ptr.hpp>

namespace devcomm::detail {

template <memory_order Order, scope Scope>
struct constant_order {
  static constexpr memory_order order = Order;
  static constexpr scope at = Scope;
};

/// Calls `access` with order and scope as constants: `Strong`, or relaxed.
template <memory_order Strong, class Access>
DEVCOMM_DEVICE auto as_constants(bool strong, scope at, const Access& access) {
  switch (at) {
    case scope::block:
      return strong ? access(constant_order<Strong, scope::block>{})
                    : access(constant_order<memory_order::relaxed, scope::block>{});
    case scope::device:
      return strong ? access(constant_order<Strong, scope::device>{})
                    : access(constant_order<memory_order::relaxed, scope::device>{});
    default:
      return strong ? access(constant_order<Strong, scope::system>{})
                    : access(constant_order<memory_order::relaxed, scope::system>{});
  }
}

}  // namespace devcomm::detail

namespace devcomm::multimem {

/// By what the window carries: its multicast address if it has one, else software. One branch for each access, the same
/// for all threads.
struct automatic {};
/// Only by the multicast address. *Requires* a window that has one.
struct hardware {};
/// Only by loads and stores of each member's memory, whatever the window has.
struct software {};

/// Element `*this` of a window on all LSA members at once. Arithmetic is in elements of `T`, as of `sym_ptr`. The
/// window's record is read once, by the constructor: make pointers outside loops.
///
/// Accesses have 4, 8 or 16 bytes and are aligned to as many. Those without an order are plain: barriers order them, as
/// they order loads and stores through other pointers. Those with one are strong, at a scope that is usually the
/// system's. Elements of up to 4 bytes, and an access of 8 bytes to one element of 8, are whole; those of 8 bytes in a
/// pack may be torn. Elements of one access may be seen at different times; nor does one access reach all members at
/// one time.
///
/// *Ordering*: the multicast address is another address of the same memory. Between accesses by the one and by the
/// other, of one thread or of two, there is a `multimem::barrier_session`, or what orders them otherwise, as a
/// `lsa::barrier_session` or a block's barrier, and `fence_alias()` by one of the two threads.
///
/// *Arithmetic*: sums of `__half` and `__nv_bfloat16` are accumulated in float, those of 8-bit floats in half precision
/// at least, and rounded once. The order of a switch's sum is not defined: two loads of the same memory may differ in
/// the last bits, so results that ranks must agree on are reduced by one of them and stored to all. In software the
/// order is that of the ranks.
template <class T, class Mode = automatic>
class ptr {
  static_assert(detail::is_same<Mode, automatic> || detail::is_same<Mode, hardware> || detail::is_same<Mode, software>,
                "the mode of a multimem pointer is multimem::automatic, hardware or software");
  static_assert(detail::is_trivially_copyable<T>, "multimem moves bytes: elements are trivially copyable");

 public:
  /// All members' memory at `offset` bytes. *Requires*, but in software, that multimem was asked of the window.
  DEVCOMM_DEVICE explicit ptr(const window& memory, uint64_t offset = 0) : memory_(memory), offset_(offset) {
    if constexpr (!is_software) {
      DEVCOMM_ASSERT(memory.base == nullptr || memory.multicast != nullptr,
                     "multimem was not asked of this window: allocate it with multimem_policy::required or "
                     "multimem_policy::or_software, or take a pointer of multimem::software");
      if (memory.base != nullptr && memory.multicast != nullptr) {
        address_ = memory.multicast->address;
        DEVCOMM_ASSERT(memory.multicast->members == static_cast<uint64_t>(memory.lsa_size),
                       "this window's multicast address reaches another number of ranks than its LSA team has");
      }
      DEVCOMM_ASSERT((!detail::is_same<Mode, hardware> || address_ != nullptr),
                     "this window has no multicast address: ask for multimem_policy::required, or take a pointer of "
                     "multimem::automatic");
    }
  }
  DEVCOMM_DEVICE explicit ptr(const sym_ptr<T>& address) : ptr(address.memory, address.offset) {}

  /// Whether accesses go to a multicast address; the same on all ranks.
  DEVCOMM_DEVICE bool is_hardware() const {
    if constexpr (is_software) {
      return false;
    } else if constexpr (detail::is_same<Mode, hardware>) {
      return true;
    } else {
      return address_ != nullptr;
    }
  }
  /// The same address for code that runs only where `is_hardware()`: its accesses are without the software that those
  /// of `automatic` carry along, which in unrolled loops is most of the code.
  DEVCOMM_DEVICE auto known_hardware() const {
    DEVCOMM_ASSERT(is_hardware(),
                   "known_hardware() is for a window that has a multicast address: ask is_hardware() first");
    return ptr<T, detail::conditional_t<is_software, software, hardware>>(memory_, offset_, address_);
  }
  /// Ranks that an access reaches.
  DEVCOMM_DEVICE int members() const { return memory_.lsa_size; }
  /// The element on one member, and the window.
  DEVCOMM_DEVICE sym_ptr<T> symmetric() const { return {memory_, offset_}; }

  /// `Bytes` bytes of all members, reduced by `Operator`: `sum`, `minimum`, `maximum`, or of integers a bitwise one.
  template <class Operator, int Bytes = widest<T>>
  DEVCOMM_DEVICE value<T, Bytes> load_reduce() const {
    return load<Operator, Bytes, true, memory_order::relaxed, scope::system>();
  }
  /// The same by strong loads. *Ordering*: one that acquires pairs with stores and reductions that release.
  template <class Operator, int Bytes = widest<T>, class Scope = scope>
  DEVCOMM_DEVICE value<T, Bytes> load_reduce(any_order order, Scope at = scope::system) const {
    detail::check_load_order(order);
    return detail::as_constants<memory_order::acquire>(acquires(order), to_scope(at),
                                                       strong_load<Operator, Bytes>{*this});
  }

  /// Stores a `T`, a `vec<T, Bytes>` or a `pack<T>` to all members.
  template <class Value>
  DEVCOMM_DEVICE void store(const Value& what) const {
    put<Value, true, memory_order::relaxed, scope::system>(what);
  }
  template <class Value, class Scope = scope>
  DEVCOMM_DEVICE void store(const Value& what, any_order order, Scope at = scope::system) const {
    detail::check_store_order(order);
    detail::as_constants<memory_order::release>(releases(order), to_scope(at), strong_store<Value>{*this, what});
  }

  /// Each member's element becomes `Operator` of itself and `what`, atomically; a `T`, a `vec` or a `pack`. Strong,
  /// relaxed by default. On `float` a switch may take numbers below the normal ones for zero. *Requires*, in
  /// software, links with atomics among the members: NVLink has them, PCIe may lack them, and nothing checks that.
  template <class Operator, class Value, class Scope = scope>
  DEVCOMM_DEVICE void reduce(const Value& what, any_order order = memory_order::relaxed,
                             Scope at = scope::system) const {
    detail::check_store_order(order);
    detail::as_constants<memory_order::release>(releases(order), to_scope(at),
                                                strong_reduction<Operator, Value>{*this, what});
  }

  /// The same address as elements of another type.
  template <class U>
  DEVCOMM_DEVICE ptr<U, Mode> as() const {
    return ptr<U, Mode>(memory_, offset_, address_);
  }

  DEVCOMM_DEVICE ptr& operator+=(int64_t elements) {
    offset_ += static_cast<uint64_t>(elements) * sizeof(T);
    return *this;
  }
  DEVCOMM_DEVICE ptr& operator-=(int64_t elements) { return *this += -elements; }
  DEVCOMM_DEVICE ptr& operator++() { return *this += 1; }
  DEVCOMM_DEVICE ptr& operator--() { return *this -= 1; }
  DEVCOMM_DEVICE friend ptr operator+(ptr p, int64_t elements) { return p += elements; }
  DEVCOMM_DEVICE friend ptr operator-(ptr p, int64_t elements) { return p -= elements; }
  /// Elements from `b` to `a`. *Requires* both to point into one window.
  DEVCOMM_DEVICE friend int64_t operator-(const ptr& a, const ptr& b) { return a.symmetric() - b.symmetric(); }
  DEVCOMM_DEVICE friend bool operator==(const ptr& a, const ptr& b) { return a.symmetric() == b.symmetric(); }
  DEVCOMM_DEVICE friend bool operator!=(const ptr& a, const ptr& b) { return !(a == b); }

 private:
  // Named, as NVRTC takes a generic lambda for a host function (CUDA 13.0).
  template <class Operator, int Bytes>
  struct strong_load {
    const ptr& from;
    template <class How>
    DEVCOMM_DEVICE value<T, Bytes> operator()(How) const {
      return from.load<Operator, Bytes, false, How::order, How::at>();
    }
  };
  template <class Value>
  struct strong_store {
    const ptr& to;
    const Value& what;
    template <class How>
    DEVCOMM_DEVICE void operator()(How) const {
      to.put<Value, false, How::order, How::at>(what);
    }
  };
  template <class Operator, class Value>
  struct strong_reduction {
    const ptr& to;
    const Value& what;
    template <class How>
    DEVCOMM_DEVICE void operator()(How) const {
      to.add<Operator, Value, How::order, How::at>(what);
    }
  };

  template <class, class>
  friend class ptr;

  static constexpr bool is_software = detail::is_same<Mode, software> || !arch::has_multimem;

  DEVCOMM_DEVICE ptr(const window& memory, uint64_t offset, char* address)
      : memory_(memory), offset_(offset), address_(address) {}

  template <int Bytes>
  DEVCOMM_DEVICE void check() const {
    static_assert(
        !detail::is_same<Mode, hardware> || arch::has_multimem,
        "this target has no multimem: compile for sm_90 or later with CUDA 12.2 or later, or take a pointer of "
        "multimem::automatic");
    DEVCOMM_ASSERT(offset_ % Bytes == 0, "a multimem access must be aligned to its size");
    DEVCOMM_ASSERT(offset_ <= memory_.bytes && Bytes <= memory_.bytes - offset_,
                   "a multimem access is past the window's end");
    DEVCOMM_ASSERT(detail::is_aligned_on_members<Bytes>(symmetric()),
                   "a member's registered memory is not aligned to the size of this multimem access: register it at a "
                   "multiple of 16 bytes on every rank, or access fewer bytes at a time");
  }
  DEVCOMM_DEVICE char* multicast() const { return address_ + offset_; }

  template <class Operator, int Bytes, bool Plain, memory_order Order, scope Scope>
  DEVCOMM_DEVICE value<T, Bytes> load() const {
    detail::check_load_reduce<Operator, T, Bytes>();
    if constexpr (detail::has_load_reduce<Operator, T, Bytes>) {
      check<Bytes>();
      if constexpr (!is_software) {
        detail::check_multimem_target<T>();
        if constexpr (!detail::is_multimem_quarter(arch::multimem_type_of<T>) || arch::has_small_multimem) {
          if (is_hardware()) {
            const auto words =
                arch::multimem_load_reduce<detail::multimem_operation_of<Operator>, T, Bytes, Plain, Order, Scope>(
                    multicast());
            value<T, Bytes> result;
            detail::copy_bytes(&result, &words, Bytes);
            return result;
          }
        }
      }
      return detail::load_reduce_members<Operator, T, Bytes, Plain, Order, Scope>(symmetric());
    } else {
      return {};
    }
  }

  template <class Value, bool Plain, memory_order Order, scope Scope>
  DEVCOMM_DEVICE void put(const Value& what) const {
    constexpr int bytes = static_cast<int>(sizeof(Value));
    static_assert(bytes == 4 || bytes == 8 || bytes == 16,
                  "a multicast address is stored to in 4, 8 or 16 bytes: take a vec or a pack of smaller elements");
    static_assert(detail::is_same<Value, value<T, bytes>>,
                  "store takes elements of the pointer's type: a T, a multimem::vec<T, Bytes> or a pack<T>");
    check<bytes>();
    detail::multimem_words<bytes> words;
    detail::copy_bytes(&words, &what, sizeof(Value));
    if constexpr (!is_software) {
      if (is_hardware()) {
        arch::multimem_store<bytes, Plain, Order, Scope>(multicast(), words);
        return;
      }
    }
    detail::store_members<bytes, Plain, Order, Scope>(symmetric(), words);
  }

  template <class Operator, class Value, memory_order Order, scope Scope>
  DEVCOMM_DEVICE void add(const Value& what) const {
    constexpr int bytes = static_cast<int>(sizeof(Value));
    detail::check_reduce<Operator, T, bytes>();
    static_assert(detail::is_same<Value, value<T, bytes>>,
                  "reduce takes elements of the pointer's type: a T, a multimem::vec<T, Bytes> or a pack<T>");
    if constexpr (detail::has_load_reduce<Operator, T, bytes> &&
                  !detail::is_multimem_quarter(arch::multimem_type_of<T>)) {
      check<bytes>();
      detail::multimem_words<bytes> words;
      detail::copy_bytes(&words, &what, sizeof(Value));
      if constexpr (!is_software) {
        if (is_hardware()) {
          arch::multimem_reduce<detail::multimem_operation_of<Operator>, T, bytes, Order, Scope>(multicast(), words);
          return;
        }
      }
      detail::reduce_members<Operator, T, bytes, Order, Scope>(symmetric(), words);
    }
  }

  window memory_;
  uint64_t offset_;
  char* address_ = nullptr;  ///< multicast address of the window; null in software
};
template <class T>
ptr(const sym_ptr<T>&) -> ptr<T>;

/// Orders what came before, in this thread or by synchronization with others, by a multimem pointer before what comes
/// after it by other pointers, and the other way round. A `multimem::barrier_session` with a multicast address has it.
DEVCOMM_DEVICE inline void fence_alias() { arch::fence_alias(); }

}  // namespace devcomm::multimem

namespace devcomm {

template <class T, class Mode>
DEVCOMM_DEVICE inline devcomm::multimem::ptr<T, Mode> window::multimem(uint64_t offset) const {
  return devcomm::multimem::ptr<T, Mode>(*this, offset);
}
template <class T>
template <class Mode>
DEVCOMM_DEVICE inline devcomm::multimem::ptr<T, Mode> sym_ptr<T>::multimem() const {
  return devcomm::multimem::ptr<T, Mode>(memory, offset);
}

}  // namespace devcomm
