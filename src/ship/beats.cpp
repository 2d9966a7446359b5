#include "ship/beats.h"

#include <algorithm>

#include "chain/heartbeat.h"

namespace deltawire {

void Beats::note(const std::string& name, std::string text, std::optional<uint64_t> version,
                 double now) {
  beats_[name] = {std::move(text), version, now};
}

void Beats::drop_silent(double now) {
  std::erase_if(beats_, [&](const auto& one) { return now - one.second.at > kSilentSeconds; });
}

std::optional<uint64_t> Beats::least(double now) {
  drop_silent(now);
  std::optional<uint64_t> least;
  for (const auto& [name, beat] : beats_) {
    if (!beat.version) return {};
    least = std::min(least.value_or(*beat.version), *beat.version);
  }
  return least;
}

std::map<std::string, std::string> Beats::texts(double now) {
  drop_silent(now);
  std::map<std::string, std::string> texts;
  for (const auto& [name, beat] : beats_) texts.emplace(name, beat.text);
  return texts;
}

}  // namespace deltawire
