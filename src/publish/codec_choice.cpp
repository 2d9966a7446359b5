#include "publish/codec_choice.h"

#include <algorithm>
#include <cstdio>

namespace deltawire {
namespace {

// Three digits are more than a forecast is worth.
std::string short_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

std::string rate_text(const LinkRate& rate) {
  char text[48];
  std::snprintf(text, sizeof text, "%.0f MB/s (", std::max(1.0, rate.bytes_per_second / 1e6));
  return text + rate.source + ")";
}

std::string forecast_text(const CodecForecast& f, const LinkRates& link) {
  return f.codec + " " + short_number(seconds_until_applied(f, link)) + " s (encode " +
         short_number(f.encode_seconds) + ", upload " +
         short_number(f.bytes / link.up.bytes_per_second) + ", download " +
         short_number(f.bytes / link.down.bytes_per_second) + ", apply " +
         short_number(f.apply_seconds) + ")";
}

}  // namespace

double seconds_until_applied(const CodecForecast& f, const LinkRates& link) {
  return std::max(f.encode_seconds, f.bytes / link.up.bytes_per_second) +
         std::max(f.bytes / link.down.bytes_per_second, f.apply_seconds);
}

CodecChoice choose_codec(std::span<const CodecForecast> forecasts, const LinkRates& link,
                         std::string_view before) {
  const auto seconds = [&](const CodecForecast& f) { return seconds_until_applied(f, link); };
  std::vector<CodecForecast> ranked(forecasts.begin(), forecasts.end());
  std::stable_sort(ranked.begin(), ranked.end(),
                   [&](const auto& a, const auto& b) { return seconds(a) < seconds(b); });
  const CodecForecast& best = ranked.front();
  const CodecForecast* chosen = &best;
  for (const CodecForecast& f : ranked) {
    if (f.codec == before && seconds(best) > (1 - kLeastGain) * seconds(f)) chosen = &f;
  }
  std::string reason = std::string(kFastest) + " of ";
  for (const CodecForecast& f : ranked) {
    if (&f != &best) reason += ", ";
    reason += forecast_text(f, link);
  }
  reason += "; upload " + rate_text(link.up) + ", download " + rate_text(link.down);
  if (chosen != &best) {
    reason += "; stays with " + chosen->codec + ", because " + best.codec +
              " would gain less than " + short_number(kLeastGain * 100) + " %";
  }
  return {chosen->codec, std::move(reason)};
}

}  // namespace deltawire
