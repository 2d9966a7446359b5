// Which codec makes a version arrive soonest (codec "fastest"): forecasts and rates in, choice and
// reason out. No clock, no store. docs/operations.md, "The fastest codec", has the model.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace deltawire {

// What a publisher may be told instead of a codec's name.
inline constexpr std::string_view kFastest = "fastest";

// What one codec would make of a version.
struct CodecForecast {
  std::string codec;
  double encode_seconds = 0;  // of the publisher: compare, encode, digest
  double apply_seconds = 0;   // of a replica: decode and prove
  double bytes = 0;           // on the way
};

// Bytes per second of a link, and how they are known.
struct LinkRate {
  double bytes_per_second = 0;
  std::string source;  // "measured", "assumed: ..."
};
struct LinkRates {
  LinkRate up, down;  // publisher to store; store to replica
};

struct CodecChoice {
  std::string codec;
  std::string reason;  // for people: what each would take, and the rates behind it
};

// Parts go up while the next ones are encoded, and are decoded while the next ones come down. A
// replica begins when the version is committed.
double seconds_until_applied(const CodecForecast& forecast, const LinkRates& link);

// Another codec than `before` has to gain this share of the time, or the choice would flap.
inline constexpr double kLeastGain = 0.1;

// The least seconds_until_applied(); of equal ones the first. `before` is the codec of the last
// version, empty: none. At least one forecast.
CodecChoice choose_codec(std::span<const CodecForecast> forecasts, const LinkRates& link,
                         std::string_view before);

}  // namespace deltawire
