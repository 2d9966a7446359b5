// Turns a packed file (format/packed_file.h) into a plain one as it arrives. Keeps only the block
// that is not complete yet.
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
  // Creates the file `to` when the front of the packed file has arrived.
  UnpackStream(std::filesystem::path to, uint64_t packed_bytes)
      : to_(std::move(to)), packed_bytes_(packed_bytes) {}

  // Takes the next bytes, which are not trusted.
  Status take(Bytes bytes) override;
  // Called after the last byte. Does not sync the file.
  Status finish() override;

 private:
  // The bytes needed before the next step, and the step.
  Result<uint64_t> wanted();
  Status step(Bytes bytes);
  Status begin_file();
  Status begin_tensors();
  Status write(uint64_t offset, Bytes bytes);
  const PackedTensor& tensor() const { return file_->tensors[tensor_]; }

  const std::filesystem::path to_;
  const uint64_t packed_bytes_;
  std::optional<Descriptor> out_;
  uint64_t space_ = 0;            // space allocated for the plain file
  std::vector<uint8_t> waiting_;  // fewer bytes than the next step needs

  std::string front_;
  std::optional<PackedFile> file_;  // set when the front has arrived
  size_t tensor_ = 0;               // the current tensor
  uint64_t done_ = 0;               // bytes of a raw payload that are done
  std::vector<uint8_t> payload_front_;
  std::optional<exponents::Directory> directory_;
  size_t block_ = 0;
  std::vector<uint8_t> block_bytes_;
};

}  // namespace deltawire
