// What replicas that share a receiving store say of themselves.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace deltawire {

// One that has been silent for long is gone: it counts no more. `now`: seconds of any clock that
// only goes on.
class Beats {
 public:
  // `version`: that it holds, if any.
  void note(const std::string& name, std::string text, std::optional<uint64_t> version, double now);
  void forget(const std::string& name) { beats_.erase(name); }

  // What all of them hold at least; none: one of them has nothing yet, or there is none.
  std::optional<uint64_t> least(double now);
  // What each said last, by name.
  std::map<std::string, std::string> texts(double now);

 private:
  struct Beat {
    std::string text;
    std::optional<uint64_t> version;
    double at = 0;
  };
  void drop_silent(double now);

  std::map<std::string, Beat> beats_;
};

}  // namespace deltawire
