// Arbitrary bytes as a delta part and as the index of a folder give a struct or a Status. Whatever
// parses must be serialised to the same bytes.
#include <cstdlib>
#include <vector>

#include "format/delta_part.h"

using namespace deltawire;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Bytes bytes(data, size);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto index = parse_delta_index(text); index.ok()) {
    if (!parse_delta_index(serialise_delta_index(*index)).ok()) std::abort();
  }
  // The checksum rejects random bytes, so records are also tried by themselves.
  if (const auto entry = parse_entry("w", text); entry.ok()) {
    const std::string again = format_entry(*entry);
    const auto back = parse_entry("w", again);
    if (!back.ok() || format_entry(*back) != again) std::abort();
  }
  if (const auto part = parse_part(bytes); part.ok()) {
    std::vector<EntryRecord> records;
    for (const PayloadView& view : part->entries) {
      records.push_back(
          {view.entry, view.payload.size(), digest_of(DigestKind::kXxh3_128, view.payload)});
    }
    if (!serialise_part_header(part->info, records).ok()) std::abort();
  }
  return 0;
}
