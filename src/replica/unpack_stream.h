// A packed file (format/packed_file.h) that becomes a plain one while it arrives: nothing of it is
// kept but the block that is not whole yet.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/file.h"
#include "codec/exponents.h"
#include "deltawire/status.h"
#include "format/packed_file.h"
#include "transfer/fetch_sink.h"

namespace deltawire {

class UnpackStream final : public Follower {
 public:
  // Makes the file `to` when the front of the packed one has come.
  UnpackStream(std::filesystem::path to, uint64_t packed_bytes)
      : to_(std::move(to)), packed_bytes_(packed_bytes) {}

  // The next bytes. Nothing in them is trusted.
  Status take(Bytes bytes) override;
  // Behind the last ones. The file is not synced.
  Status finish() override;

 private:
  // Bytes that are needed before the next step can be made, and the step.
  Result<uint64_t> wanted();
  Status step(Bytes bytes);
  Status begin_file();
  Status begin_tensors();
  Status write(uint64_t offset, Bytes bytes);
  const PackedTensor& tensor() const { return file_->tensors[tensor_]; }

  const std::filesystem::path to_;
  const uint64_t packed_bytes_;
  std::optional<Descriptor> out_;
  uint64_t space_ = 0;            // of the plain file, taken so far
  std::vector<uint8_t> waiting_;  // less than the next step needs

  std::string front_;
  std::optional<PackedFile> file_;  // once its front is there
  size_t tensor_ = 0;               // which one comes
  uint64_t done_ = 0;               // of the payload of a raw one
  std::vector<uint8_t> payload_front_;
  std::optional<exponents::Directory> directory_;
  size_t block_ = 0;
  std::vector<uint8_t> block_bytes_;
};

}  // namespace deltawire
