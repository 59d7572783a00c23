#include "perf/plot.hpp"

#include "perf/options.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <stdexcept>

namespace perf {
namespace {

constexpr double width = 760;
constexpr double height = 300;
constexpr double left = 60;
constexpr double top = 40;
constexpr double gap = 70;  // between the two pictures
const char* const colours[] = {"#0b6e4f", "#c1292e", "#235789", "#f1a208", "#7b2d8b", "#5c5c5c", "#00a6a6", "#8c510a"};

using points = std::map<std::uint64_t, double>;
using curves = std::map<std::string, points>;

/// A line for each name: the best value of each size.
curves collect(const std::vector<row>& rows, const std::function<double(const row&)>& value, bool least) {
  curves all;
  for (const row& line : rows) {
    const bool is_ours = line.implementation == "devcomm";
    const std::string name =
        line.implementation + " " + (is_ours ? line.algorithm + " " : "") + line.protocol + lateness_text(line.late);
    points& curve = all[name];
    const double next = value(line);
    const auto [place, is_new] = curve.emplace(line.bytes, next);
    if (!is_new) place->second = least ? std::min(place->second, next) : std::max(place->second, next);
  }
  return all;
}

/// One picture with its axes; sizes and, if `logarithmic`, values by their logarithm.
class picture {
 public:
  picture(std::ostream& out, double y, const curves& all, bool logarithmic)
      : out_(out), y_(y), logarithmic_(logarithmic) {
    for (const auto& [name, curve] : all) {
      for (const auto& [bytes, value] : curve) {
        least_bytes_ = std::min(least_bytes_, bytes);
        most_bytes_ = std::max(most_bytes_, bytes);
        least_ = std::min(least_, value);
        most_ = std::max(most_, value);
      }
    }
    if (!logarithmic_) least_ = 0;
  }

  void draw(const curves& all, const std::string& title) {
    text(left, y_ - 12, title, "start", 14);
    out_ << "<rect x=\"" << left << "\" y=\"" << y_ << "\" width=\"" << width << "\" height=\"" << height
         << "\" fill=\"none\" stroke=\"#999\"/>\n";
    for (std::uint64_t bytes = least_bytes_; bytes <= most_bytes_; bytes *= 4)
      text(x_of(bytes), y_ + height + 18, bytes_text(bytes), "middle", 11);
    for (const double value : ticks()) {
      out_ << "<line x1=\"" << left << "\" x2=\"" << left + width << "\" y1=\"" << y_of(value) << "\" y2=\""
           << y_of(value) << "\" stroke=\"#ddd\"/>\n";
      std::string label = std::to_string(value);
      label.erase(std::min(label.find_last_not_of("0") + 1, label.size()));
      if (!label.empty() && label.back() == '.') label.pop_back();
      text(left - 6, y_of(value) + 4, label, "end", 11);
    }
    int i = 0;
    for (const auto& [name, curve] : all) {
      const char* colour = colours[static_cast<std::size_t>(i) % std::size(colours)];
      out_ << "<polyline fill=\"none\" stroke-width=\"2\" stroke=\"" << colour << "\" points=\"";
      for (const auto& [bytes, value] : curve) out_ << x_of(bytes) << "," << y_of(value) << " ";
      out_ << "\"/>\n";
      const double place = y_ + 16 + 16 * i++;
      out_ << "<rect x=\"" << left + 10 << "\" y=\"" << place - 8 << "\" width=\"14\" height=\"4\" fill=\"" << colour
           << "\"/>\n";
      text(left + 30, place, name, "start", 11);
    }
  }

 private:
  [[nodiscard]] double x_of(std::uint64_t bytes) const {
    if (most_bytes_ == least_bytes_) return left + width / 2;
    return left + width * std::log2(static_cast<double>(bytes) / static_cast<double>(least_bytes_)) /
                      std::log2(static_cast<double>(most_bytes_) / static_cast<double>(least_bytes_));
  }
  [[nodiscard]] double y_of(double value) const {
    const double share = logarithmic_ ? std::log(value / least_) / std::max(std::log(most_ / least_), 1e-9)
                                      : (value - least_) / std::max(most_ - least_, 1e-9);
    return y_ + height - height * share;
  }
  [[nodiscard]] std::vector<double> ticks() const {
    std::vector<double> values;
    if (logarithmic_) {
      for (double decade = 0.1; decade <= most_; decade *= 10)
        for (const double step : {1.0, 2.0, 5.0})
          if (decade * step >= least_ && decade * step <= most_) values.push_back(decade * step);
    } else {
      const double step = most_ > 200 ? 50 : most_ > 20 ? 5 : most_ / 5;
      for (double value = 0; value <= most_ && values.size() < 40; value += step) values.push_back(value);
    }
    return values;
  }
  void text(double x, double y, const std::string& words, const char* anchor, int size) {
    out_ << "<text x=\"" << x << "\" y=\"" << y << "\" font-family=\"sans-serif\" font-size=\"" << size
         << "\" text-anchor=\"" << anchor << "\">" << words << "</text>\n";
  }

  std::ostream& out_;
  double y_;
  bool logarithmic_;
  std::uint64_t least_bytes_ = ~std::uint64_t{0};
  std::uint64_t most_bytes_ = 0;
  double least_ = 1e300;
  double most_ = 0;
};

}  // namespace

void write_plot(const std::string& path, const std::vector<row>& rows) {
  if (rows.empty()) throw std::runtime_error("there are no rows to draw in " + path);
  std::ofstream out(path);
  out << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" << left + width + 30 << "\" height=\""
      << 2 * (top + height) + gap << "\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
  const std::string what = rows.front().operation + ", " + to_string(rows.front().type) + ", " +
                           std::to_string(rows.front().ranks) + " ranks: ";
  const curves latency = collect(
      rows, [](const row& line) { return line.median; }, true);
  const curves bandwidth = collect(
      rows, [](const row& line) { return line.bus_bandwidth(); }, false);
  picture(out, top, latency, true).draw(latency, what + "microseconds");
  picture(out, top + height + gap, bandwidth, false).draw(bandwidth, what + "bus bandwidth, GB/s");
  out << "</svg>\n";
  out.close();
  if (!out) throw std::runtime_error("cannot write " + path);
}

}  // namespace perf
