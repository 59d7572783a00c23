#include "race/pages.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <vector>

namespace devcomm::simulator::race {
namespace {

/// Cells of pages, in huge pages of the system: threads that take turns access them in any order, and half of the time
/// would go into address translation. All calls with the detector's guard.
class cell_pool {
 public:
  /// Empty cells of a page.
  [[nodiscard]] cell* take() {
    if (free_.empty()) grow();
    cell* const last = free_.back();
    free_.pop_back();
    return last;
  }
  void give_back(cell* empty) { free_.push_back(empty); }

 private:
  void grow() {
    constexpr size_t huge = size_t{2} << 20;
    void* const mapped = mmap(nullptr, 2 * huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    const auto begin = (reinterpret_cast<uintptr_t>(mapped) + huge - 1) / huge * huge;
    madvise(reinterpret_cast<void*>(begin), huge, MADV_HUGEPAGE);
    auto* const all = reinterpret_cast<cell*>(begin);  // zeros are empty cells
    for (size_t i = huge / sizeof(cell); i != 0; i -= page::cells) free_.push_back(all + i - page::cells);
  }

  std::vector<cell*> free_;
};

cell_pool& pool_of_cells() {
  static auto& only = *new cell_pool;  // outlives all static objects
  return only;
}

}  // namespace

page::~page() {
  std::free(replaced_);
  if (cells_ == nullptr) return;
  for (uintptr_t i = 0; i < cells; ++i) cells_[i].clear();
  pool_of_cells().give_back(cells_);
}

cell& page::at(uintptr_t address) {
  if (cells_ == nullptr) cells_ = pool_of_cells().take();
  return cells_[address % bytes / 4];
}

replaced* page::make_replaced_cells() {
  if (replaced_ == nullptr) {
    replaced_ = static_cast<replaced*>(std::calloc(cells, sizeof(replaced)));  // zeros: nothing
    if (replaced_ == nullptr) throw std::bad_alloc();
  }
  return replaced_;
}

void page::watch(uintptr_t begin, uintptr_t end) {
  ended_ = record();
  for (uintptr_t a = begin / 4 * 4; a < end; a += 4)
    watched_[a % bytes / 4 / 64] |= uint64_t{1} << (a % bytes / 4 % 64);
}

bool page::forget(uintptr_t begin, uintptr_t end) {
  for (uintptr_t a = begin / 4 * 4; a < end; a += 4) {
    const uintptr_t i = a % bytes / 4;
    watched_[i / 64] &= ~(uint64_t{1} << (i % 64));
    if (cells_ != nullptr) cells_[i].clear();
    if (replaced_ != nullptr) replaced_[i].store = 0;
  }
  const auto gone = [&](const auto& v) { return v.first >= begin && v.first < end; };
  std::erase_if(variables_, gone);
  std::erase_if(older_, gone);
  return std::all_of(std::begin(watched_), std::end(watched_), [](uint64_t w) { return w == 0; });
}

page*& page_table::slot(uintptr_t address) {
  page**& part = parts_[address / part_bytes];
  if (part == nullptr) {
    const size_t bytes = pages_per_part * sizeof(page*);  // NOLINT(bugprone-sizeof-expression): of the pointer
    void* const memory =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    __atomic_store_n(&part, static_cast<page**>(memory), __ATOMIC_RELEASE);
  }
  return part[address % part_bytes / page::bytes];
}

void page_table::watch(uintptr_t base, std::size_t bytes, bool delayed) {
  forget(base, bytes);
  for (uintptr_t a = base; a < base + bytes; a = a / page::bytes * page::bytes + page::bytes) {
    page*& at = slot(a);
    if (at == nullptr) __atomic_store_n(&at, new page, __ATOMIC_RELEASE);
    at->delay_stores(delayed);
    at->watch(a, std::min(base + bytes, a / page::bytes * page::bytes + page::bytes));
  }
}

void page_table::forget(uintptr_t base, std::size_t bytes) {
  for (uintptr_t a = base; a < base + bytes; a = a / page::bytes * page::bytes + page::bytes) {
    page* const found = find(a);
    if (found == nullptr) continue;
    if (!found->forget(a, std::min(base + bytes, a / page::bytes * page::bytes + page::bytes))) continue;
    __atomic_store_n(&slot(a), nullptr, __ATOMIC_RELEASE);
    delete found;
  }
}

}  // namespace devcomm::simulator::race
