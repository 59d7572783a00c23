/// The report of a deadlock: every thread that waits, equal ones together, a cycle among them, and a picture.
#include "report/deadlock.hpp"

#include "report/wait_graph.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

namespace devcomm::simulator::detail {
namespace {

constexpr size_t lines_kept = 40;

std::string describe_cycle(const wait_graph& graph) {
  std::string text = "\n  the waits form a cycle:";
  for (const size_t node : graph.cycle) {
    text += "\n    " + graph.nodes[node].who + " at " + graph.nodes[node].where + " waits for";
  }
  return text + "\n    " + graph.nodes[graph.cycle.front()].who;
}

/// Says where the picture is, or why there is none.
std::string draw(const wait_graph& graph, const std::string& path) {
  const bool dot = std::string_view(path).ends_with(".dot");
  const std::string picture = dot ? draw_dot(graph) : draw_svg(graph);
  std::FILE* const file = std::fopen(path.c_str(), "w");
  bool written = file != nullptr && std::fputs(picture.c_str(), file) >= 0;
  if (file != nullptr) written = std::fclose(file) == 0 && written;
  if (!written) return "\n  no picture: " + path + " cannot be written: " + std::strerror(errno);
  return "\n  picture: " + path;
}

}  // namespace

std::string describe_deadlock(const snapshot& all, const std::string& picture) {
  const wait_graph graph = make_wait_graph(all);
  std::string text = "deadlock: every thread waits and nothing can change";
  size_t lines = 0;
  for (const waiting_threads& node : graph.nodes) {
    if (lines++ < lines_kept) text += "\n  " + node.who + ": " + node.what;
  }
  if (lines > lines_kept) text += "\n  and " + std::to_string(lines - lines_kept) + " more";
  if (!graph.cycle.empty()) text += describe_cycle(graph);
  if (!picture.empty()) text += draw(graph, picture);
  return text;
}

}  // namespace devcomm::simulator::detail
