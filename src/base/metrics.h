// Metrics of this process, in the Prometheus text format.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace deltawire {

// Each may be used from any thread, and costs an atomic or two.
class Counter {
 public:
  void add(double amount = 1) noexcept { value_.fetch_add(amount, std::memory_order_relaxed); }
  double value() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};
};

class Gauge {
 public:
  void set(double value) noexcept { value_.store(value, std::memory_order_relaxed); }
  double value() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};
};

class Histogram {
 public:
  explicit Histogram(std::span<const double> bounds);
  void observe(double value) noexcept;

  std::span<const double> bounds() const noexcept { return bounds_; }
  // The number of observations in bucket i alone: at most bounds()[i]; the last bucket has the
  // rest.
  uint64_t count(size_t bucket) const noexcept { return counts_[bucket].load(); }
  double sum() const noexcept { return sum_.load(); }

 private:
  const std::vector<double> bounds_;  // ascending
  const std::unique_ptr<std::atomic<uint64_t>[]> counts_;
  std::atomic<double> sum_{0};
};

// Thread-safe. Returned references live as long as the Metrics. The first call fixes the type and
// the help text of a name; a later call with another type returns a metric that is not rendered.
class Metrics {
 public:
  using Labels = std::vector<std::pair<std::string, std::string>>;

  // `name` as Prometheus wants it: [a-zA-Z_:][a-zA-Z0-9_:]*, counters end in "_total". Label names
  // likewise, without ':'. Label values may be any text.
  Counter& counter(std::string_view name, std::string_view help, const Labels& labels = {});
  Gauge& gauge(std::string_view name, std::string_view help, const Labels& labels = {});
  Histogram& histogram(std::string_view name, std::string_view help, std::span<const double> bounds,
                       const Labels& labels = {});

  // Families by name, members by labels: the same numbers give the same text.
  std::string render() const;

 private:
  struct Family {
    std::string help;
    // By rendered labels, "" or {a="b",c="d"}. One of the three is in use.
    std::map<std::string, std::unique_ptr<Counter>> counters;
    std::map<std::string, std::unique_ptr<Gauge>> gauges;
    std::map<std::string, std::unique_ptr<Histogram>> histograms;
    std::string_view type() const;
  };
  Family& family(std::string_view name, std::string_view help, std::string_view type);

  mutable std::mutex mutex_;
  std::map<std::string, Family, std::less<>> families_;
  std::map<std::string, Family, std::less<>> not_rendered_;
};

// The one of this process.
Metrics& metrics();

}  // namespace deltawire
