// What a publisher has learned of its speed and of its link by the versions it made: the basis of
// the forecasts for the next one. Kept beside a snapshot on disk, so that every call knows what
// the last one found.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "publish/codec_choice.h"

namespace deltawire {

// Newer measurements count twice as much as those before them. Values that cannot be (no bytes, no
// time, anything infinite) are not learned.
class CodecRates {
 public:
  // So many bytes were put while the link was busy for so long.
  void learn_upload(double bytes, double seconds);
  // Encoding so many bytes of weights took `seconds` where the sample alone had made us expect
  // `forecast`.
  void learn_encode(double weights_bytes, double forecast, double seconds);
  // The middle one of so many replicas says that they fetch so quickly, bytes per second.
  void learn_download(double bytes_per_second, size_t num_replicas);
  void learn_choice(std::string codec) { last_codec_ = std::move(codec); }

  // `near`: the store is a folder or memory, which matters until something was measured.
  LinkRates link(bool near) const;
  // Seconds for each byte of weights beyond what a sample promises: reading files, other processes.
  // The same for all codecs, so that they do not speak for or against one.
  double overhead() const noexcept { return overhead_; }
  const std::string& last_codec() const noexcept { return last_codec_; }

  std::string to_text() const;
  // Text that makes no sense is nothing learned.
  static CodecRates of_text(std::string_view text);

  // In the folder of a snapshot. Neither can fail: what is lost is measured again.
  static CodecRates load(const std::filesystem::path& folder);
  void save(const std::filesystem::path& folder) const;

 private:
  double uploaded_bytes_ = 0, upload_seconds_ = 0;  // old ones fade
  double download_rate_ = 0;                        // 0: not known
  size_t num_replicas_ = 0;                         // that it is of
  double overhead_ = 0;
  bool overhead_known_ = false;
  std::string last_codec_;
};

}  // namespace deltawire
