/// Runs a fuzz target over files and folders of inputs, where there is no libFuzzer.
#include "fuzz.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

namespace {

std::size_t replay(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path)) {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(path)) count += replay(entry.path());
    return count;
  }
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> data(std::istreambuf_iterator<char>(file), {});
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(data.data()), data.size());
  return 1;
}

}  // namespace

int main(int count, char** arguments) {
  std::size_t inputs = 0;
  for (int i = 1; i < count; ++i) inputs += replay(arguments[i]);
  std::printf("%zu inputs\n", inputs);
  return inputs == 0 ? 1 : 0;
}
