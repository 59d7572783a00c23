// A device header in plain C++ stops with one message that says what to link.
#if defined(CORRECTED)
#  include <devcomm/team.hpp>
#else
#  include <devcomm/devcomm.cuh>
#endif

int main() { return 0; }
