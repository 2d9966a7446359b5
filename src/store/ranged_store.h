// What stores behind an HTTP server share: objects are read in ranges, over several connections.
#pragma once

#include <string>
#include <string_view>

#include "deltawire/store.h"
#include "store/pieces.h"

namespace deltawire {

class RangedStore : public Store {
 public:
  explicit RangedStore(const StoreOptions& options)
      : connections_(options.connections),
        piece_bytes_(options.multipart_bytes),
        retries_(PieceRetries::at_most(options.retries)),
        slots_(options.connections) {}

  Result<ObjectInfo> stat(std::string_view name) override;
  Status read(std::string_view name, uint64_t offset, std::span<uint8_t> out) override;
  Status download(std::string_view name, uint64_t size_bytes, Sink* sink) override;

 protected:
  // How an object is asked for; HEAD for its size and time, and GET.
  virtual Result<HttpAnswer> head(std::string_view name) = 0;
  virtual RangeSource source_of(std::string_view name) = 0;

  // Names the store and the object in a failure.
  Status at(std::string_view name, Status status) const;
  // Bytes [offset, offset + size) of an object, whose size must be `object_size`, into `sink`.
  Status fetch(std::string_view name, uint64_t offset, uint64_t size, uint64_t object_size,
               Sink* sink);

  const unsigned connections_;
  const uint64_t piece_bytes_;
  const PieceRetries retries_;
  Slots slots_;
};

}  // namespace deltawire
