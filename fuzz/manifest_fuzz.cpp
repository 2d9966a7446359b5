// Arbitrary bytes as every record of a chain and as names of objects give a struct or a Status.
// Whatever parses must be serialised to the same bytes: records are canonical.
#include <cstdlib>
#include <string>

#include "chain/heartbeat.h"
#include "chain/named_objects.h"
#include "chain/names.h"
#include "chain/trash.h"
#include "format/manifest.h"
#include "format/part_check.h"

using namespace deltawire;

namespace {

void expect(bool good) {
  if (!good) std::abort();
}

// Adds a valid checksum, so that the code behind the check is reached.
std::string with_checksum(std::string_view text) {
  const size_t at = text.find("\"check\":\"");
  if (at == std::string_view::npos || text.size() < at + 43) return std::string(text);
  std::string without(text);
  without.erase(at, 43);
  const Digest check = digest_of(
      DigestKind::kXxh3_128, {reinterpret_cast<const uint8_t*>(without.data()), without.size()});
  return std::string(text).replace(at + 9, 32, check.hex());
}

void try_records(const std::string& text) {
  if (const auto manifest = parse_manifest(text, {}); manifest.ok()) {
    // Unknown members and signatures are omitted.
    const auto again = serialise_manifest(*manifest, {});
    expect(again.ok());
    const auto back = parse_manifest(*again, {});
    expect(back.ok() && serialise_manifest(*back, {}).value() == *again);
    Schema schema;
    (void)check_state(schema, *manifest);
    if (check_side_objects(*manifest).ok()) {
      for (const SideFile& file : manifest->files) {
        expect(check_object_name(side_object(file).name).ok());
      }
    }
  }
  if (const auto hop = parse_hop(text, {}); hop.ok()) {
    const auto again = serialise_hop(*hop, {});
    const auto back = parse_hop(again.value(), {});
    expect(back.ok() && serialise_hop(*back, {}).value() == *again);
  }
  if (const auto heartbeat = parse_heartbeat(text); heartbeat.ok()) {
    expect(parse_heartbeat(serialise_heartbeat(*heartbeat)).value() == *heartbeat);
  }
  if (const auto trash = parse_trash(text); trash.ok()) {
    expect(parse_trash(serialise_trash(*trash)).value() == *trash);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try_records(text);
  try_records(with_checksum(text));
  if (const auto schema = parse_schema(text); schema.ok()) {
    expect(parse_schema(serialise_schema(*schema)).value() == *schema);
  }
  if (const auto hop = parse_hop_name(text)) expect(hop_name(*hop) == text);
  if (const auto version = version_of_manifest(text)) expect(manifest_name(*version) == text);
  if (const auto version = version_of_pin(text)) {
    expect(text.starts_with(std::string(kPinPrefix) + number_name(*version)));
  }
  if (const auto folder = attempt_folder(text)) expect(text.starts_with(folder->folder));
  const std::string canonical = canonical_text(text);
  CanonicalReader reader(canonical);
  (void)reader.text();
  reader.finish();
  expect(reader.ok());
  return 0;
}
