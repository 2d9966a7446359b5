#include "base/metrics.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace deltawire {
namespace {

std::string sample_text(double number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number > 0 ? "+Inf" : "-Inf";
  char text[64];
  // Counts read as counts, not as 1e+09, as far as doubles are exact.
  const bool whole = std::trunc(number) == number && std::abs(number) < 9e15;
  const auto end = whole ? std::to_chars(text, text + sizeof text, int64_t(number)).ptr
                         : std::to_chars(text, text + sizeof text, number).ptr;
  return {text, end};
}

std::string escaped(std::string_view text, bool quotes) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out.append("\\\\");
    } else if (c == '\n') {
      out.append("\\n");
    } else if (c == '"' && quotes) {
      out.append("\\\"");
    } else {
      out.push_back(c);
    }
  }
  return out;
}

std::string labels_text(const Metrics::Labels& labels) {
  if (labels.empty()) return {};
  std::string out = "{";
  for (const auto& [name, value] : labels) {
    if (out.size() > 1) out.push_back(',');
    out.append(name).append("=\"").append(escaped(value, true)).append("\"");
  }
  return out + "}";
}

// {a="b"} and le="1" make {a="b",le="1"}
std::string with_label(const std::string& labels, const std::string& more) {
  if (labels.empty()) return "{" + more + "}";
  return labels.substr(0, labels.size() - 1) + "," + more + "}";
}

void sample(std::string* out, std::string_view name, std::string_view suffix,
            const std::string& labels, double value) {
  out->append(name).append(suffix).append(labels).append(" ").append(sample_text(value));
  out->push_back('\n');
}

void render_histogram(std::string* out, std::string_view name, const std::string& labels,
                      const Histogram& histogram) {
  const auto bounds = histogram.bounds();
  uint64_t count = 0;
  for (size_t i = 0; i <= bounds.size(); ++i) {
    count += histogram.count(i);
    const std::string bound = i < bounds.size() ? sample_text(bounds[i]) : "+Inf";
    sample(out, name, "_bucket", with_label(labels, "le=\"" + bound + "\""), double(count));
  }
  sample(out, name, "_sum", labels, histogram.sum());
  sample(out, name, "_count", labels, double(count));
}

template <class T, class... Args>
T& member(std::map<std::string, std::unique_ptr<T>>* all, const Metrics::Labels& labels,
          Args&&... args) {
  auto& found = (*all)[labels_text(labels)];
  if (found == nullptr) found = std::make_unique<T>(std::forward<Args>(args)...);
  return *found;
}

}  // namespace

Histogram::Histogram(std::span<const double> bounds)
    : bounds_(bounds.begin(), bounds.end()),
      counts_(std::make_unique<std::atomic<uint64_t>[]>(bounds.size() + 1)) {}

void Histogram::observe(double value) noexcept {
  const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  counts_[size_t(bucket)].fetch_add(1);
  sum_.fetch_add(value);
}

std::string_view Metrics::Family::type() const {
  if (!counters.empty()) return "counter";
  if (!gauges.empty()) return "gauge";
  return histograms.empty() ? "" : "histogram";
}

Metrics::Family& Metrics::family(std::string_view name, std::string_view help,
                                 std::string_view type) {
  const auto found = families_.find(name);
  if (found == families_.end()) {
    Family& made = families_[std::string(name)];
    made.help = help;
    return made;
  }
  if (found->second.type() == type) return found->second;
  return not_rendered_[std::string(type) + " " + std::string(name)];
}

Counter& Metrics::counter(std::string_view name, std::string_view help, const Labels& labels) {
  const std::lock_guard lock(mutex_);
  return member(&family(name, help, "counter").counters, labels);
}

Gauge& Metrics::gauge(std::string_view name, std::string_view help, const Labels& labels) {
  const std::lock_guard lock(mutex_);
  return member(&family(name, help, "gauge").gauges, labels);
}

Histogram& Metrics::histogram(std::string_view name, std::string_view help,
                              std::span<const double> bounds, const Labels& labels) {
  const std::lock_guard lock(mutex_);
  return member(&family(name, help, "histogram").histograms, labels, bounds);
}

std::string Metrics::render() const {
  const std::lock_guard lock(mutex_);
  std::string out;
  for (const auto& [name, family] : families_) {
    out.append("# HELP ").append(name).append(" ").append(escaped(family.help, false));
    out.append("\n# TYPE ").append(name).append(" ").append(family.type()).append("\n");
    for (const auto& [labels, one] : family.counters) sample(&out, name, "", labels, one->value());
    for (const auto& [labels, one] : family.gauges) sample(&out, name, "", labels, one->value());
    for (const auto& [labels, one] : family.histograms) render_histogram(&out, name, labels, *one);
  }
  return out;
}

Metrics& metrics() {
  static Metrics* const the_metrics = new Metrics;  // never destroyed: threads may outlive main()
  return *the_metrics;
}

}  // namespace deltawire
