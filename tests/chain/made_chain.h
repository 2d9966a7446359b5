// Chains of records alone: sizes as a test wants them, no weights behind them.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "chain/chain.h"
#include "chain/hop_records.h"
#include "chain/names.h"
#include "support/hooked_store.h"

namespace deltawire::testing {

// A record as it is in the store, and what a reference needs to know of it.
struct MadeVersion {
  bool full = false;
  uint64_t bytes = 0, chain_bytes = 0, anchor = 0, anchor_bytes = 0;
  Digest digest;
};
struct MadeHop {
  std::optional<uint64_t> base;
  uint64_t version = 0, bytes = 0;
};

class MadeChain {
 public:
  MadeChain()
      : memory(std::make_shared<MemoryStore>()),
        store(std::make_shared<HookedStore>(memory)),
        chain(create_chain(store, {}, false).value()) {
    store->has_clock = false;
    schema_ = put_schema(chain, {{{"w", DType::kU8, {1}}}}).value();
  }

  // The next version.
  void add(uint64_t bytes, bool full = false) {
    add_manifest(next(bytes, full || versions.empty()));
  }

  Manifest next(uint64_t bytes, bool full) const {
    Manifest m{.run = chain.run(),
               .version = versions.size(),
               .kind = full ? VersionKind::kFull : VersionKind::kDelta};
    if (full) m.reason = "test";
    if (!full) m.base = m.version - 1;
    if (!versions.empty()) m.parent = versions.back().digest;
    m.created = "2026-11-15T05:36:24Z";
    m.publisher = "test:1";
    const std::string folder = full ? full_folder(m.version, "aa") : part_folder(m.version, "aa");
    m.parts = {{folder + "part-00000.safetensors", bytes, record_digest("part")}};
    m.schema = schema_;
    m.digests = {digest_of(DigestKind::kSum128, {})};
    m.state = m.digests[0];
    m.chain_bytes = (versions.empty() ? 0 : versions.back().chain_bytes) + bytes;
    m.anchor = full ? m.version : anchor_;
    m.anchor_bytes = full ? bytes : anchor_bytes_;
    m.codec = "auto";
    return m;
  }

  void add_manifest(const Manifest& m) {
    const Commit committed = commit_version(chain, m);
    ASSERT_TRUE(committed.ok()) << committed.status.to_string();
    anchor_ = m.anchor;
    anchor_bytes_ = m.anchor_bytes;
    versions.push_back({m.kind == VersionKind::kFull, m.part_bytes(), m.chain_bytes, m.anchor,
                        m.anchor_bytes, committed.digest});
  }

  // A hop record; from nothing without a base. Versions published later know of anchors.
  HopName add_hop(std::optional<uint64_t> base, uint64_t version, uint64_t bytes) {
    HopRecord hop = made_hop(base, version, bytes);
    const HopName name{version, base, bytes, base ? versions[*base].chain_bytes : 0,
                       versions[version].chain_bytes};
    put_hop(name, hop);
    hops.push_back({base, version, bytes});
    if (!base && version >= anchor_) {
      anchor_ = version;
      anchor_bytes_ = bytes;
    }
    return name;
  }

  HopRecord made_hop(std::optional<uint64_t> base, uint64_t version, uint64_t bytes) const {
    HopRecord hop{
        .run = chain.run(), .version = version, .base = base, .manifest = versions[version].digest};
    if (base) hop.base_manifest = versions[*base].digest;
    hop.created = "2026-11-15T05:36:24Z";
    const std::string folder = base ? part_folder(version, "bb") : full_folder(version, "bb");
    hop.parts = {{folder + "part-00000.safetensors", bytes, record_digest("hop")}};
    return hop;
  }

  void put_hop(const HopName& name, const HopRecord& hop) {
    ASSERT_TRUE(memory->put(hop_name(name), MemoryBody(serialise_hop(hop, {}).value())).ok());
  }

  std::shared_ptr<MemoryStore> memory;
  std::shared_ptr<HookedStore> store;
  Chain chain;
  std::vector<MadeVersion> versions;
  std::vector<MadeHop> hops;

 private:
  PartRef schema_;
  uint64_t anchor_ = 0, anchor_bytes_ = 0;
};

}  // namespace deltawire::testing
