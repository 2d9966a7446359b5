#include "publish/codec_rates.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/folder.h"
#include "base/json.h"

namespace deltawire {
namespace {

constexpr std::string_view kRatesFormat = "rates/1", kRatesName = "rates.json";
constexpr uint64_t kMaxRatesBytes = 1 << 16;
constexpr double kFade = 0.5;
// A publish that was held up for longer says nothing: a tenth of a second for each megabyte.
constexpr double kLargestOverhead = 1e-7;
// Until something is measured: a disk or memory, and any network.
constexpr double kNearRate = 1e9, kFarRate = 1e8;

bool is_amount(double value) { return std::isfinite(value) && value > 0; }

}  // namespace

void CodecRates::learn_upload(double bytes, double seconds) {
  if (!is_amount(bytes) || !is_amount(seconds)) return;
  uploaded_bytes_ = kFade * uploaded_bytes_ + bytes;
  upload_seconds_ = kFade * upload_seconds_ + seconds;
}

void CodecRates::learn_encode(double weights_bytes, double forecast, double seconds) {
  if (!is_amount(weights_bytes) || !is_amount(forecast) || !is_amount(seconds)) return;
  const double found = std::clamp((seconds - forecast) / weights_bytes, 0.0, kLargestOverhead);
  overhead_ = overhead_known_ ? kFade * overhead_ + (1 - kFade) * found : found;
  overhead_known_ = true;
}

void CodecRates::learn_download(double bytes_per_second, size_t num_replicas) {
  if (!is_amount(bytes_per_second) || num_replicas == 0) return;
  download_rate_ = bytes_per_second;
  num_replicas_ = num_replicas;
}

LinkRates CodecRates::link(bool near) const {
  LinkRates link;
  if (is_amount(upload_seconds_)) {
    link.up = {uploaded_bytes_ / upload_seconds_, "measured"};
  } else {
    link.up = {near ? kNearRate : kFarRate, std::string(near ? "assumed of a folder" : "assumed") +
                                                ", nothing was uploaded yet"};
  }
  link.down = {link.up.bytes_per_second, "assumed the same"};
  if (download_rate_ > 0) {
    link.down = {download_rate_, num_replicas_ == 1
                                     ? "measured by a replica"
                                     : "middle of " + std::to_string(num_replicas_) + " replicas"};
  }
  return link;
}

std::string CodecRates::to_text() const {
  return json_text(nlohmann::json{
             {"format", kRatesFormat},
             {"uploaded_bytes", uploaded_bytes_},
             {"upload_seconds", upload_seconds_},
             {"download_rate", download_rate_},
             {"replicas", num_replicas_},
             {"overhead", overhead_known_ ? nlohmann::json(overhead_) : nlohmann::json()},
             {"codec", last_codec_}}) +
         "\n";
}

CodecRates CodecRates::of_text(std::string_view text) {
  CodecRates rates;
  const nlohmann::json json = parse_json(text);
  if (!json.is_object() || json.value("format", nlohmann::json()) != kRatesFormat) return rates;
  const auto number = [](const nlohmann::json& object, const std::string& key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_number() ? found->get<double>() : 0;
  };
  rates.learn_upload(number(json, "uploaded_bytes"), number(json, "upload_seconds"));
  const double replicas = number(json, "replicas");
  if (replicas >= 1 && replicas < 1e9) {
    rates.learn_download(number(json, "download_rate"), size_t(replicas));
  }
  if (const auto found = json.find("overhead"); found != json.end() && found->is_number()) {
    rates.overhead_ = std::clamp(found->get<double>(), 0.0, kLargestOverhead);
    rates.overhead_known_ = true;
  }
  if (const auto codec = json.find("codec"); codec != json.end() && codec->is_string()) {
    rates.last_codec_ = codec->get<std::string>();
  }
  return rates;
}

CodecRates CodecRates::load(const std::filesystem::path& folder) {
  const Result<std::string> text = read_text_file(folder / kRatesName, kMaxRatesBytes);
  return text.ok() ? of_text(*text) : CodecRates();
}

void CodecRates::save(const std::filesystem::path& folder) const {
  if (make_folder(folder).ok()) (void)write_text_file(folder / kRatesName, to_text());
}

}  // namespace deltawire
