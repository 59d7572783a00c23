/// Pictures of who waits for whom.
#include "report/wait_graph.hpp"

#include <algorithm>
#include <iterator>
#include <map>

namespace devcomm::simulator::detail {
namespace {

constexpr size_t nodes_drawn = 200;

std::string escape(const std::string& text, bool for_svg) {
  std::string safe;
  for (const char c : text) {
    if (for_svg && c == '&') {
      safe += "&amp;";
    } else if (for_svg && c == '<') {
      safe += "&lt;";
    } else if (for_svg && c == '>') {
      safe += "&gt;";
    } else if (!for_svg && (c == '"' || c == '\\')) {
      safe += std::string("\\") + c;
    } else {
      safe += c;
    }
  }
  return safe;
}

/// Whether the edge is one of the cycle's.
bool in_cycle(const wait_graph& graph, size_t from, size_t to) {
  const size_t length = graph.cycle.size();
  for (size_t i = 0; i < length; ++i) {
    if (graph.cycle[i] == from && graph.cycle[(i + 1) % length] == to) return true;
  }
  return false;
}

/// The nodes that are drawn: those of the cycle first, then as many others as have room.
std::vector<size_t> choose(const wait_graph& graph) {
  std::vector<size_t> chosen = graph.cycle;
  for (size_t i = 0; i < graph.nodes.size() && chosen.size() < nodes_drawn; ++i) {
    if (!graph.nodes[i].in_cycle) chosen.push_back(i);
  }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

/// What a node waits for, of those drawn.
std::vector<size_t> drawn_edges(const wait_graph& graph, const std::vector<size_t>& chosen, size_t from) {
  std::vector<size_t> to;
  const std::vector<size_t>& all = graph.edges.waits_for(from);
  std::set_intersection(all.begin(), all.end(), chosen.begin(), chosen.end(), std::back_inserter(to));
  return to;
}

std::string left_out(const wait_graph& graph, const std::vector<size_t>& chosen) {
  const size_t more = graph.nodes.size() - chosen.size();
  return more == 0 ? "" : "; " + std::to_string(more) + " more are left out";
}

// --- the picture's measures, in pixels ---
constexpr int box_height = 40;
constexpr int row = 70;
constexpr int gap = 120;  // between columns
constexpr int border = 20;
constexpr int head = 60;
constexpr double letter = 6.7;

struct box {
  int x;
  int y;
  int width;
  size_t column;
};

std::string number(int value) { return std::to_string(value); }

std::string text_at(int x, int y, const char* style, const std::string& text) {
  return "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\" class=\"" + style + "\">" + escape(text, true) +
         "</text>\n";
}

std::string draw_box(const waiting_threads& node, const box& b) {
  return "<rect x=\"" + number(b.x) + "\" y=\"" + number(b.y) + "\" width=\"" + number(b.width) + "\" height=\"" +
         number(box_height) + "\" rx=\"6\" class=\"" + (node.in_cycle ? "cycle" : "other") + "\"/>\n" +
         text_at(b.x + 8, b.y + 16, "who", node.who) + text_at(b.x + 8, b.y + 32, "what", node.what);
}

/// From the side of one box that faces the other.
std::string draw_edge(const box& from, const box& to, bool red) {
  const bool same = from.column == to.column;
  const bool right = from.column < to.column;
  const int x1 = right || same ? from.x + from.width : from.x;
  const int x2 = same ? to.x + to.width : right ? to.x : to.x + to.width;
  const int y1 = from.y + box_height / 2 + (right ? -6 : 6);
  const int y2 = to.y + box_height / 2 + (right ? -6 : 6);
  const int bend = same ? 60 : right ? gap / 2 : -gap / 2;
  const int back = same ? 60 : -bend;
  const std::string kind = red ? "red" : "gray";
  return "<path class=\"" + kind + "\" marker-end=\"url(#" + kind + ")\" d=\"M" + number(x1) + " " + number(y1) + " C" +
         number(x1 + bend) + " " + number(y1) + " " + number(x2 + back) + " " + number(y2) + " " + number(x2) + " " +
         number(y2) + "\"/>\n";
}

std::string marker(const char* name, const char* color) {
  return std::string("<marker id=\"") + name +
         "\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" "
         "orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"" +
         color + "\"/></marker>\n";
}

}  // namespace

std::string draw_dot(const wait_graph& graph) {
  const std::vector<size_t> chosen = choose(graph);
  std::string text = "digraph deadlock {\n  rankdir=LR;\n  label=\"who waits for whom" + left_out(graph, chosen) +
                     "\";\n  node [shape=box, style=rounded, fontname=\"monospace\"];\n";
  for (const size_t i : chosen) {
    const waiting_threads& node = graph.nodes[i];
    text += "  n" + std::to_string(i) + " [label=\"" + escape(node.who, false) + "\\n" + escape(node.what, false) +
            "\"" + (node.in_cycle ? ", color=red" : "") + "];\n";
  }
  for (const size_t from : chosen) {
    for (const size_t to : drawn_edges(graph, chosen, from)) {
      text += "  n" + std::to_string(from) + " -> n" + std::to_string(to) +
              (in_cycle(graph, from, to) ? " [color=red, penwidth=2]" : "") + ";\n";
    }
  }
  return text + "}\n";
}

std::string draw_svg(const wait_graph& graph) {
  const std::vector<size_t> chosen = choose(graph);
  // A column for each rank; columns by their first thread, boxes in the order of the report.
  std::vector<std::string> columns;
  std::map<std::string, int> widths;
  for (const size_t i : chosen) {
    const waiting_threads& node = graph.nodes[i];
    if (widths.count(node.column) == 0) columns.push_back(node.column);
    const auto letters = static_cast<double>(std::max(node.who.size(), node.what.size()));
    widths[node.column] = std::max(widths[node.column], static_cast<int>(letters * letter) + 16);
  }
  std::map<std::string, box> next;
  int x = border;
  for (size_t c = 0; c < columns.size(); ++c) {
    next[columns[c]] = {x, head, widths[columns[c]], c};
    x += widths[columns[c]] + gap;
  }
  std::map<size_t, box> boxes;
  int bottom = head;
  for (const size_t i : chosen) {
    box& slot = next[graph.nodes[i].column];
    boxes[i] = slot;
    slot.y += row;
    bottom = std::max(bottom, slot.y);
  }

  const std::string size = "width=\"" + number(x) + "\" height=\"" + number(bottom) + "\"";
  std::string text = "<svg xmlns=\"http://www.w3.org/2000/svg\" " + size + " viewBox=\"0 0 " + number(x) + " " +
                     number(bottom) +
                     "\">\n<style>text{font-family:monospace;font-size:11px}.title{font-size:14px}.who{font-weight:"
                     "bold}rect{fill:#fff;stroke:#888}rect.cycle{fill:#fee;stroke:#c00}path.red,path.gray{fill:none;"
                     "stroke:#c00;stroke-width:2}path.gray{stroke:#888;stroke-width:1}</style>\n<defs>\n" +
                     marker("red", "#c00") + marker("gray", "#888") +
                     "</defs>\n<rect width=\"100%\" height=\"100%\" style=\"stroke:none\"/>\n" +
                     text_at(border, 26, "title", "Deadlock: who waits for whom" + left_out(graph, chosen));
  for (const auto& [i, b] : boxes) {
    for (const size_t to : drawn_edges(graph, chosen, i)) text += draw_edge(b, boxes[to], in_cycle(graph, i, to));
  }
  for (const auto& [i, b] : boxes) text += draw_box(graph.nodes[i], b);
  return text + "</svg>\n";
}

}  // namespace devcomm::simulator::detail
