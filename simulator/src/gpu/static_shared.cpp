#include "gpu/static_shared.hpp"

#include <devcomm/simulator/detail/execution.hpp>

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace devcomm::simulator::detail {

/// A thread-local variable by whose address others are found; not local, so that the symbol table has it.
extern __thread char static_shared_anchor;
__thread char static_shared_anchor = 0;

__thread memory_range shared_of_block{};
__thread memory_range stacks_of_block{};

namespace {

struct variable_offset {
  std::ptrdiff_t from_anchor;  ///< distance from `static_shared_anchor`, equal in every thread
  size_t bytes;
  std::string name;
};

/// The program's file in memory, read-only.
class program_file {
 public:
  program_file() {
    const int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    struct stat status {};
    if (fstat(file, &status) == 0) {
      bytes_ = static_cast<size_t>(status.st_size);
      void* const memory = mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, file, 0);
      if (memory != MAP_FAILED) data_ = static_cast<const char*>(memory);
    }
    close(file);
  }
  ~program_file() {
    if (data_ != nullptr) munmap(const_cast<char*>(data_), bytes_);
  }
  program_file(const program_file&) = delete;
  program_file& operator=(const program_file&) = delete;

  /// Whether there is an ELF file of this machine's kind.
  [[nodiscard]] bool usable() const {
    return data_ != nullptr && bytes_ > sizeof(Elf64_Ehdr) && std::memcmp(data_, ELFMAG, SELFMAG) == 0 &&
           data_[EI_CLASS] == ELFCLASS64;
  }
  template <class T>
  [[nodiscard]] const T* at(uint64_t offset) const {
    return reinterpret_cast<const T*>(data_ + offset);
  }

 private:
  const char* data_ = nullptr;
  size_t bytes_ = 0;
};

/// Mangled names of what is local to a function start so, apart from what is local to one of the C++
/// library's.
bool local_to_a_function(const char* name) {
  return std::strncmp(name, "_ZZ", 3) == 0 && std::strncmp(name, "_ZZSt", 5) != 0 &&
         std::strncmp(name, "_ZZNSt", 6) != 0 && std::strncmp(name, "_ZZNKSt", 7) != 0;
}

std::vector<variable_offset> find_variables() {
  std::vector<variable_offset> found;
  const program_file program;
  if (!program.usable()) return found;
  const auto* header = program.at<Elf64_Ehdr>(0);
  const auto* sections = program.at<Elf64_Shdr>(header->e_shoff);
  bool anchored = false;
  std::ptrdiff_t anchor = 0;
  for (int s = 0; s < header->e_shnum; ++s) {
    if (sections[s].sh_type != SHT_SYMTAB) continue;
    const auto* symbols = program.at<Elf64_Sym>(sections[s].sh_offset);
    const auto* names = program.at<char>(sections[sections[s].sh_link].sh_offset);
    for (size_t i = 0; i < sections[s].sh_size / sizeof(Elf64_Sym); ++i) {
      const Elf64_Sym& symbol = symbols[i];
      if (ELF64_ST_TYPE(symbol.st_info) != STT_TLS || symbol.st_shndx == SHN_UNDEF) continue;
      const char* name = names + symbol.st_name;
      const auto offset = static_cast<std::ptrdiff_t>(symbol.st_value);
      if (std::strcmp(name, "_ZN7devcomm9simulator6detail20static_shared_anchorE") == 0) {
        anchored = true;
        anchor = offset;
      } else if (local_to_a_function(name)) {
        found.push_back({offset, symbol.st_size, name});
      }
    }
  }
  if (!anchored) found.clear();
  for (variable_offset& p : found) p.from_anchor -= anchor;
  return found;
}

const std::vector<variable_offset>& variable_offsets() {
  static const auto& only = *new std::vector<variable_offset>(find_variables());
  return only;
}

}  // namespace

std::vector<memory_span> static_shared_memory() {
  std::vector<memory_span> spans;
  spans.reserve(variable_offsets().size());
  for (const variable_offset& p : variable_offsets()) {
    spans.push_back({reinterpret_cast<char*>(&static_shared_anchor) + p.from_anchor, p.bytes, p.name.c_str()});
  }
  return spans;
}

void note_shared_range(const char* dynamic_start, size_t dynamic_bytes) {
  std::uintptr_t first = ~std::uintptr_t{0};
  std::uintptr_t end = 0;
  const auto include = [&](const char* base, size_t bytes) {
    if (base == nullptr || bytes == 0) return;  // a launch may ask for more than its kernel has
    first = std::min(first, reinterpret_cast<std::uintptr_t>(base));
    end = std::max(end, reinterpret_cast<std::uintptr_t>(base) + bytes);
  };
  for (const variable_offset& p : variable_offsets())
    include(reinterpret_cast<const char*>(&static_shared_anchor) + p.from_anchor, p.bytes);
  include(dynamic_start, dynamic_bytes);
  shared_of_block = end == 0 ? memory_range{} : memory_range{first, end - first};
}

void poison_static_shared() {
  for (const variable_offset& p : variable_offsets()) {
    // A plain loop: memset would be ThreadSanitizer's.
    auto* bytes = reinterpret_cast<volatile unsigned char*>(&static_shared_anchor) + p.from_anchor;
    for (size_t i = 0; i < p.bytes; ++i) bytes[i] = 0xff;
  }
}

}  // namespace devcomm::simulator::detail
