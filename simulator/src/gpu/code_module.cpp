#include "gpu/code_module.hpp"

#include "base/sanitizer.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <mutex>

// Of the linker; null where the program has no such variable.
extern "C" {
extern char __start_devcomm_of_each_gpu[] __attribute__((weak));
extern char __stop_devcomm_of_each_gpu[] __attribute__((weak));
}

extern "C" __attribute__((weak)) const devcomm::simulator::detail::dynamic_shared devcomm_simulator_dynamic_shared;

namespace devcomm::simulator::detail {

/// A thread-local variable by whose address others are found; not local, so that the symbol table has it.
extern __thread char static_shared_anchor;
__thread char static_shared_anchor = 0;

__thread code_module* this_module = nullptr;

namespace {

/// A program's or a library's file in memory, read-only.
class binary_file {
 public:
  explicit binary_file(const char* path) {
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    struct stat status {};
    if (fstat(file, &status) == 0) {
      bytes_ = static_cast<size_t>(status.st_size);
      void* const memory = mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, file, 0);
      if (memory != MAP_FAILED) data_ = static_cast<const char*>(memory);
    }
    close(file);
  }
  ~binary_file() {
    if (data_ != nullptr) munmap(const_cast<char*>(data_), bytes_);
  }
  binary_file(const binary_file&) = delete;
  binary_file& operator=(const binary_file&) = delete;

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

std::vector<shared_variable> find_variables(const std::string& path, const char* anchor_name) {
  std::vector<shared_variable> found;
  const binary_file file(path.c_str());
  if (!file.usable()) return found;
  const auto* header = file.at<Elf64_Ehdr>(0);
  const auto* sections = file.at<Elf64_Shdr>(header->e_shoff);
  bool anchored = false;
  std::ptrdiff_t anchor = 0;
  for (int s = 0; s < header->e_shnum; ++s) {
    if (sections[s].sh_type != SHT_SYMTAB) continue;
    const auto* symbols = file.at<Elf64_Sym>(sections[s].sh_offset);
    const auto* names = file.at<char>(sections[sections[s].sh_link].sh_offset);
    for (size_t i = 0; i < sections[s].sh_size / sizeof(Elf64_Sym); ++i) {
      const Elf64_Sym& symbol = symbols[i];
      if (ELF64_ST_TYPE(symbol.st_info) != STT_TLS || symbol.st_shndx == SHN_UNDEF) continue;
      const char* name = names + symbol.st_name;
      const auto offset = static_cast<std::ptrdiff_t>(symbol.st_value);
      if (std::strcmp(name, anchor_name) == 0) {
        anchored = true;
        anchor = offset;
      } else if (local_to_a_function(name)) {
        found.push_back({offset, symbol.st_size, name});
      }
    }
  }
  if (!anchored) found.clear();
  for (shared_variable& p : found) p.from_anchor -= anchor;
  return found;
}

std::string file_of(const void* code) {
  Dl_info about{};
  return dladdr(code, &about) != 0 && about.dli_fname != nullptr ? about.dli_fname : std::string();
}

code_module* make_module(const kernel_module& parts, const std::string& file) {
  return new code_module{
      parts, file, find_variables(file, parts.anchor_name), std::vector<char>(parts.globals_begin, parts.globals_end),
      {},    -1};
}

code_module* module_of_program() {
  const kernel_module parts{nullptr,
                            [] { return &static_shared_anchor; },
                            "_ZN7devcomm9simulator6detail20static_shared_anchorE",
                            &devcomm_simulator_dynamic_shared,
                            __start_devcomm_of_each_gpu,
                            __stop_devcomm_of_each_gpu};
  return make_module(parts, "/proc/self/exe");
}

}  // namespace

bool code_module::has_global(const void* address) const {
  const char* const at = static_cast<const char*>(address);
  return at >= parts.globals_begin && at < parts.globals_end;
}

std::vector<code_module*>& code_modules() {
  static auto& all = *new std::vector<code_module*>{module_of_program()};
  return all;
}

code_module& module_of(const void* function) {
  std::vector<code_module*>& all = code_modules();
  if (all.size() > 1) {
    const std::string file = file_of(function);
    for (code_module* const each : all)
      if (each->file == file) return *each;
  }
  return *all.front();
}

void add_kernel_module(const kernel_module& parts) {
  const sanitizer::unobserved hidden;
  code_modules().push_back(make_module(parts, file_of(parts.code)));
}

}  // namespace devcomm::simulator::detail
