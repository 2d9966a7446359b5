// Numbers as people write and read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "deltawire/status.h"

namespace deltawire::cli {

std::string human_bytes(double bytes);    // "1.21 GB": powers of ten, as links and disks have them
std::string human_count(uint64_t count);  // "12,345,678"
std::string plural(uint64_t count, std::string_view noun);  // "1 file", "1,200 files"
std::string percent(double share);                          // "1.204 %"
std::string seconds(double value);                          // "0.21 s"
std::string utc_text(int64_t seconds_since_1970);           // "2026-08-05T14:03:00Z"

// "100M", "1.7B", "64MiB", "512": decimal suffixes K M G B T, binary with "i"; a trailing "B" after
// one of them is ignored, alone it means billions.
Result<uint64_t> parse_count(std::string_view text);
// "256MiB", "4kB", "512": the same for bytes, where a trailing "B" alone means just those.
Result<uint64_t> parse_bytes(std::string_view text);

// "90s", "30m", "6h", "2d", "90": seconds.
Result<uint64_t> parse_duration(std::string_view text);

}  // namespace deltawire::cli
