// A libfabric.so.1 of version 1.11, as far as devcomm looks at it.
#include <cstdint>

extern "C" {
std::uint32_t fi_version();
void fi_getinfo();
void fi_freeinfo();
void fi_dupinfo();
void fi_fabric();
void fi_strerror();

std::uint32_t fi_version() { return 1u << 16 | 11u; }
void fi_getinfo() {}
void fi_freeinfo() {}
void fi_dupinfo() {}
void fi_fabric() {}
void fi_strerror() {}
}
