#include "race/pages.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace devcomm::simulator::race {

page::~page() {
  std::free(replaced_);
  if (cells_ == nullptr) return;
  for (uintptr_t i = 0; i < cells; ++i) cells_[i].clear();
  std::free(cells_);
}

cell& page::at(uintptr_t address) {
  if (cells_ == nullptr) {
    cells_ = static_cast<cell*>(std::calloc(cells, sizeof(cell)));  // zeros are empty cells
    if (cells_ == nullptr) throw std::bad_alloc();
  }
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
