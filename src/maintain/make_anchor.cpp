// Anchors for versions that were published without one.
#include "base/guard.h"
#include "chain/hop_records.h"
#include "chain/keys.h"
#include "chain/names.h"
#include "chain/part_reader.h"
#include "deltawire/maintain.h"
#include "format/tensor_digest.h"
#include "maintain/walk_parts.h"
#include "publish/anchor.h"
#include "replica/tensors.h"
#include "store/bodies.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

// Reads all parts and compares them with the record, which costs less than making them again.
Result<bool> are_sound(Store& store, const std::vector<PartRef>& parts, const Progress& progress) {
  uint64_t done = 0, total = 0;
  for (const PartRef& part : parts) total += part.size_bytes;
  const auto keep_going = [&](uint64_t bytes) {
    done += bytes;
    return !progress || progress(done, total);
  };
  for (const PartRef& part : parts) {
    const Status status = check_part(store, part, keep_going);
    if (is_damage(status)) return false;
    DW_RETURN_IF_ERROR(Status(status));
  }
  return true;
}

// Whether a sound manifest or hop record stores the version whole. Adds hop records with damaged
// parts, even if their sizes are right, to `damaged`.
Result<bool> is_stored_whole(const Chain& chain, const VersionRecord& record,
                             const Progress& progress, std::vector<HopName>* damaged) {
  const uint64_t version = record.manifest.version;
  if (record.manifest.kind == VersionKind::kFull) {
    DW_ASSIGN_OR_RETURN(const bool sound,
                        are_sound(chain.store(), record.manifest.parts, progress));
    if (sound) return true;
  }
  DW_ASSIGN_OR_RETURN(const auto hops, list_hops(chain, version, version, SIZE_MAX));
  for (const HopName& name : hops) {
    if (name.base) continue;
    DW_ASSIGN_OR_RETURN(const bool usable, is_usable(chain, name));
    if (!usable) continue;
    DW_ASSIGN_OR_RETURN(const HopRecord hop, read_hop(chain, name));
    DW_ASSIGN_OR_RETURN(const bool sound, are_sound(chain.store(), hop.parts, progress));
    if (sound) return true;
    damaged->push_back(name);
  }
  return false;
}

// Corruption, naming the tensor, unless these are the version's tensors.
Status check_version(std::span<const PublishTensor> tensors, const Contents& contents,
                     const Target& version, ThreadPool* pool) {
  const auto& expected = version.schema.tensors;
  if (tensors.size() != expected.size()) {
    return corruption("expected " + std::to_string(expected.size()) + " tensors, got " +
                      std::to_string(tensors.size()));
  }
  return parallel_try("hashing", pool, expected.size(), [&](size_t i, unsigned) -> Status {
    const std::string place = "tensor " + quote(expected[i].name);
    if (tensors[i].view.name != expected[i].name) return corruption(place + ": is missing");
    const auto* const boxes = boxes_hashed(version.manifest, expected[i].name);
    Digest got;
    if (boxes == nullptr) {
      DW_ASSIGN_OR_RETURN(got, digest_of_body(DigestKind::kSum128, *contents[i]));
    } else {  // consists of several byte ranges
      std::vector<uint8_t> bytes(contents[i]->size());
      DW_RETURN_IF_ERROR(contents[i]->read(0, bytes));
      got = tensor_digest(expected[i].dtype, expected[i].shape, bytes, boxes);
    }
    if (got == version.manifest.digests[i]) return {};
    return corruption(place + ": expected " + version.manifest.digests[i].hex() + ", got " +
                      got.hex());
  });
}

}  // namespace

Result<AnchorReport> make_anchor(const Chain& chain, std::optional<uint64_t> version,
                                 const WorkOptions& options) {
  const PublishClock clock;
  const std::shared_ptr<Store>& store = chain.shared_store();
  if (!version) {
    DW_ASSIGN_OR_RETURN(version, chain.head());
  }
  if (!version) return not_found(store->url() + ": nothing was published yet");
  DW_ASSIGN_OR_RETURN(const VersionRecord record, chain.version(*version));
  DW_RETURN_IF_ERROR(check_key(chain, record.manifest));
  AnchorReport report;
  report.run = chain.run();
  report.version = *version;
  std::vector<HopName> damaged;
  DW_ASSIGN_OR_RETURN(const bool there, is_stored_whole(chain, record, options.progress, &damaged));
  if (!there) {
    DW_ASSIGN_OR_RETURN(const WorkFolder work, WorkFolder::make(options.folder));
    DW_ASSIGN_OR_RETURN(ChainState state, ChainState::open(chain, work.path() / "state", options));
    DW_ASSIGN_OR_RETURN(const Checkpoint* checkpoint, state.bring_to(*version));
    const std::vector<PublishTensor> tensors = tensors_of(*checkpoint);
    const Contents contents = contents_of(tensors, nullptr);
    DW_ASSIGN_OR_RETURN(std::vector<FullFile> files, files_of_checkpoint(*checkpoint, contents));
    ThreadPool pool(options.threads);
    if (!options.plain_files) DW_RETURN_IF_ERROR(pack_files(&files, &pool));
    DW_ASSIGN_OR_RETURN(const auto sides, SideFiles::gather({}, &record.manifest, store));
    for (FullFile& copy : sides->copies()) files.push_back(std::move(copy));
    report.num_files = files.size();
    DW_ASSIGN_OR_RETURN(const Schema schema, chain.schema(record.manifest));
    const auto prove = [&] {
      return check_version(tensors, contents, {record.manifest, schema}, &pool);
    };
    DW_ASSIGN_OR_RETURN(report.bytes, add_anchor(chain, record, std::move(files), *sides, clock,
                                                 options.progress, prove, true));
    report.written = true;
    for (const HopName& name : damaged) {
      if (name.bytes != report.bytes) DW_RETURN_IF_ERROR(store->remove(hop_name(name)));
    }
  }
  report.seconds = clock.now();
  return report;
}

}  // namespace deltawire
