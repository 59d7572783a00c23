#include "base/symbol.hpp"

#include "base/sanitizer.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <unistd.h>
#include <unwind.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>

namespace devcomm::simulator::detail {
namespace {

struct module_offset {
  std::string file;
  uint64_t offset = 0;
};

module_offset locate(uint64_t code) {
  Dl_info about{};
  if (dladdr(reinterpret_cast<const void*>(code), &about) == 0 || about.dli_fname == nullptr) return {};
  const auto* header = static_cast<const Elf64_Ehdr*>(about.dli_fbase);
  const uint64_t base = header->e_type == ET_EXEC ? 0 : reinterpret_cast<uint64_t>(about.dli_fbase);
  // The program's own name may be relative to where it was started.
  char own[4096];
  const ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
  Dl_info of_program{};
  std::string file = about.dli_fname;
  if (length > 0 && dladdr(reinterpret_cast<const void*>(&locate), &of_program) != 0 &&
      of_program.dli_fbase == about.dli_fbase) {
    file.assign(own, static_cast<size_t>(length));
  }
  return {file, code - base};
}

std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

void replace_all(std::string& text, const std::string& what, const std::string& by) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
}

/// A function's demangled name with types as they are written: enumerators by name, and the library's own types, which
/// are aliases of templates, by theirs.
std::string as_written(std::string name) {
  static constexpr const char* names[][2] = {
      {"devcomm::lsa::mailbox_handle<(devcomm::packet_protocol)0>", "devcomm::lsa::ll_handle"},
      {"devcomm::lsa::mailbox_handle<(devcomm::packet_protocol)1>", "devcomm::lsa::lamport_handle"},
      {"devcomm::lsa::mailbox_handle<(devcomm::packet_protocol)2>", "devcomm::lsa::ll128_handle"},
      {"(devcomm::channel::protocol)0", "devcomm::channel::protocol::simple"},
      {"(devcomm::channel::protocol)1", "devcomm::channel::protocol::ll"},
      {"(devcomm::channel::protocol)2", "devcomm::channel::protocol::ll128"},
      {"(devcomm::channel::protocol)3", "devcomm::channel::protocol::network"},
      {"(devcomm::memory_order)0", "devcomm::memory_order::relaxed"},
      {"(devcomm::memory_order)2", "devcomm::memory_order::acquire"},
      {"(devcomm::memory_order)3", "devcomm::memory_order::release"},
      {"(devcomm::memory_order)4", "devcomm::memory_order::acq_rel"},
      {"(devcomm::scope)0", "devcomm::scope::block"},
      {"(devcomm::scope)1", "devcomm::scope::device"},
      {"(devcomm::scope)2", "devcomm::scope::system"},
      {"std::__cxx11::", "std::"},
      {"> >", ">>"},
  };
  for (const auto& [compiled, written] : names) replace_all(name, compiled, written);
  return name.rfind("void ", 0) == 0 ? name.substr(5) : name;  // only templates' names have what they return
}

/// Functions and lines in turn; empty when the tool is not there or knows nothing.
std::vector<source_line> ask(const std::string& command) {
  std::vector<source_line> found;
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return found;
  char* text = nullptr;  // names of templates have any length
  size_t room = 0;
  std::vector<std::string> lines;
  while (getline(&text, &room, pipe) > 0) {
    text[std::strcspn(text, "\n")] = '\0';
    if (text[0] != '\0') lines.emplace_back(text);
  }
  std::free(text);
  pclose(pipe);
  for (size_t i = 0; i + 1 < lines.size(); i += 2) {
    std::string location = lines[i + 1];
    location = location.substr(0, location.find(" (discriminator"));
    if (lines[i] == "??" && location.rfind("??", 0) == 0) continue;
    found.push_back({as_written(lines[i]), location});
  }
  return found;
}

std::vector<source_line> look_up(uint64_t code) {
  const module_offset at = locate(code);
  char offset[32];
  std::snprintf(offset, sizeof offset, "0x%llx", static_cast<unsigned long long>(at.offset));
  if (at.file.empty()) return {{"", offset}};
  const std::string arguments = " -C -i -f -e " + quoted(at.file) + " " + offset + " 2>/dev/null";
  std::vector<source_line> found = ask("addr2line" + arguments);
  if (found.empty()) {
    found = ask("llvm-symbolizer --demangle --inlines --functions --output-style=GNU --obj=" + quoted(at.file) + " " +
                offset + " 2>/dev/null");
  }
  if (found.empty()) found.push_back({"", at.file + "+" + offset});
  return found;
}

_Unwind_Reason_Code note_call(_Unwind_Context* context, void* stack) {
  auto& calls = *static_cast<call_stack*>(stack);
  if (calls.depth == call_stack::most) return _URC_END_OF_STACK;
  calls.codes[calls.depth++] = static_cast<uint64_t>(_Unwind_GetIP(context));
  return _URC_NO_REASON;
}

}  // namespace

std::vector<source_line> lines_of(uint64_t code) {
  const sanitizer::unobserved hidden;  // who asks first keeps the answer for all
  static auto& known = *new std::map<uint64_t, std::vector<source_line>>;
  const auto [at, fresh] = known.try_emplace(code);
  if (fresh) at->second = look_up(code);
  return at->second;
}

std::string function_at(const void* code) {
  const std::vector<source_line> found = lines_of(reinterpret_cast<uint64_t>(code));
  return found.back().function.empty() ? found.back().location : found.back().function;
}

bool is_inside(const std::string& location) {
  for (const char* const part :
       {"/include/devcomm/", "/simulator/src/", "/simulator/shim/", "/cccl/", "/include/cuda/"}) {
    if (location.find(part) != std::string::npos) return true;
  }
  return location.rfind("/usr/", 0) == 0;
}

void call_stack::take() {
  depth = 0;
  _Unwind_Backtrace(&note_call, this);
}

std::string call_stack::outside() const {
  for (int i = 0; i < depth; ++i) {
    for (const source_line& line : lines_of(codes[i] - 1)) {
      const bool has_line =
          line.location.find(':') != std::string::npos && line.location.find('?') == std::string::npos;
      if (!has_line || is_inside(line.location)) continue;
      return line.location + (line.function.empty() ? "" : " in " + line.function);
    }
  }
  return {};
}

}  // namespace devcomm::simulator::detail
