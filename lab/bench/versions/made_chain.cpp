#include "lab/bench/versions/made_chain.h"

#include <fstream>

#include "chain/names.h"

namespace deltawire::cli {
namespace {

constexpr uint64_t kWholeBytes = 1'000'000'000, kDeltaBytes = 10'000'000;
constexpr uint64_t kAnchorEvery = 256;
constexpr uint64_t kSpans[] = {4, 16, 64};
constexpr size_t kPage = 1000;
constexpr uint64_t kRecordBytes = 900;                      // about: the measure of progress
constexpr uint64_t kLargestChainBytes = uint64_t{1} << 20;  // of a record
constexpr char kCreated[] = "2026-11-15T05:36:24Z";

std::vector<PartRef> one_part(const std::string& folder, uint64_t bytes) {
  return {{folder + "part-00000.safetensors", bytes, record_digest("part")}};
}

class Maker {
 public:
  explicit Maker(Chain chain, PartRef schema) : chain_(std::move(chain)), schema_(schema) {}

  Status add_version(uint64_t version, MadeChain* made) {
    Manifest m;
    const bool whole = version == 0;
    m.run = chain_.run();
    m.version = version;
    m.kind = whole ? VersionKind::kFull : VersionKind::kDelta;
    if (whole) m.reason = "seed";
    if (!whole) m.base = version - 1;
    if (!whole) m.parent = made->manifests.back();
    m.created = kCreated;
    m.publisher = "bench:1";
    m.parts = one_part(whole ? full_folder(version, "aa") : part_folder(version, "aa"),
                       whole ? kWholeBytes : kDeltaBytes);
    m.schema = schema_;
    m.digests = {digest_of(DigestKind::kSum128, {})};
    m.state = m.digests[0];
    m.chain_bytes = chain_bytes(version);
    m.anchor = anchor_;
    m.anchor_bytes = kWholeBytes;
    m.codec = "auto";
    const Commit committed = commit_version(chain_, m);
    made->manifests.push_back(committed.digest);
    return committed.status;
  }

  Status add_hops(uint64_t version, MadeChain* made) {
    if (version == 0) return {};
    for (const uint64_t span : kSpans) {
      if (version % span != 0) continue;
      DW_RETURN_IF_ERROR(add_hop(version - span, version, kDeltaBytes * span * 3 / 4, made));
    }
    if (version % kAnchorEvery != 0) return {};
    anchor_ = version;
    return add_hop({}, version, kWholeBytes, made);
  }

 private:
  static uint64_t chain_bytes(uint64_t version) { return kWholeBytes + version * kDeltaBytes; }

  Status add_hop(std::optional<uint64_t> base, uint64_t version, uint64_t bytes, MadeChain* made) {
    HopRecord hop;
    hop.run = chain_.run();
    hop.version = version;
    hop.base = base;
    hop.manifest = made->manifests[version];
    if (base) hop.base_manifest = made->manifests[*base];
    hop.created = kCreated;
    hop.parts = one_part(base ? part_folder(version, "bb") : full_folder(version, "bb"), bytes);
    const HopName name{version, base, bytes, base ? chain_bytes(*base) : 0, chain_bytes(version)};
    DW_ASSIGN_OR_RETURN(const std::string text, serialise_hop(hop, {}));
    return made->memory->put(hop_name(name), MemoryBody(text));
  }

  const Chain chain_;
  const PartRef schema_;
  uint64_t anchor_ = 0;
};

}  // namespace

Result<MadeChain> make_chain(uint64_t versions, const Progress& progress) {
  MadeChain made{std::make_shared<MemoryStore>(), {}};
  DW_ASSIGN_OR_RETURN(const Chain chain, create_chain(made.memory, {}, false));
  DW_ASSIGN_OR_RETURN(const PartRef schema, put_schema(chain, {{{"w", DType::kU8, {1}}}}));
  Maker maker(chain, schema);
  for (uint64_t version = 0; version < versions; ++version) {
    if (progress && !progress(version * kRecordBytes, versions * kRecordBytes)) {
      return cancelled("stopped on request");
    }
    DW_RETURN_IF_ERROR(maker.add_version(version, &made));
    DW_RETURN_IF_ERROR(maker.add_hops(version, &made));
  }
  return made;
}

Status write_objects(Store* store, const std::filesystem::path& folder) {
  std::string after;
  while (true) {
    DW_ASSIGN_OR_RETURN(const std::vector<ObjectInfo> page, store->list("", after, kPage));
    for (const ObjectInfo& object : page) {
      DW_ASSIGN_OR_RETURN(const std::string bytes, store->get(object.name, kLargestChainBytes));
      const std::filesystem::path path = folder / object.name;
      std::error_code error;
      std::filesystem::create_directories(path.parent_path(), error);
      std::ofstream out(path, std::ios::binary);
      out << bytes;
      if (!out.flush()) return io_error(path.string() + ": cannot write");
    }
    if (page.size() < kPage) return {};
    after = page.back().name;
  }
}

}  // namespace deltawire::cli
