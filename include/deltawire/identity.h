// Which version of which run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace deltawire {

// What is held, served or asked for. A version number alone identifies nothing: a store may be
// replaced by one of another run, and a publisher may reuse a number that the store has lost.
struct Identity {
  std::string run;
  uint64_t version = 0;
  std::string manifest;  // sha-256 of the version's manifest, hex

  bool operator==(const Identity&) const = default;
};

// "version 4 of run 1a2b3c4d"
inline std::string to_string(const Identity& identity) {
  constexpr size_t kShownDigits = 8;
  return "version " + std::to_string(identity.version) + " of run " +
         identity.run.substr(0, kShownDigits);
}

// None of nothing.
inline std::optional<uint64_t> version_of(const std::optional<Identity>& identity) {
  return identity ? std::optional(identity->version) : std::nullopt;
}

// Whether who holds `held` is at `wanted` or past it: the same state, or a later one of that run.
inline bool reaches(const Identity& held, const Identity& wanted) {
  return held.run == wanted.run &&
         (held.version > wanted.version || held.manifest == wanted.manifest);
}

}  // namespace deltawire
