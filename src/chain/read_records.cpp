#include "chain/read_records.h"

#include "chain/hop_records.h"

namespace deltawire {
namespace {

Result<ReadRecord> read_version(const Chain& chain, uint64_t version) {
  DW_ASSIGN_OR_RETURN(VersionRecord record, chain.version(version));
  Manifest& m = record.manifest;
  return ReadRecord{manifest_name(version), std::move(m.signed_by), std::move(m.parts),
                    std::move(m.files)};
}

Result<ReadRecord> read_one(const Chain& chain, const HopName& name) {
  DW_ASSIGN_OR_RETURN(HopRecord hop, read_hop(chain, name));
  return ReadRecord{hop_name(name), std::move(hop.signed_by), std::move(hop.parts), {}};
}

}  // namespace

Result<std::vector<ReadRecord>> read_records(const Chain& chain,
                                             const std::vector<uint64_t>& versions,
                                             const std::vector<HopName>& hops,
                                             std::vector<std::string>* notes) {
  std::vector<Result<ReadRecord>> got(versions.size() + hops.size(), ReadRecord());
  request_in_parallel(got.size(), [&](size_t i) {
    got[i] = i < versions.size() ? read_version(chain, versions[i])
                                 : read_one(chain, hops[i - versions.size()]);
  });
  std::vector<ReadRecord> records;
  for (Result<ReadRecord>& record : got) {
    if (record.ok()) {
      records.push_back(std::move(*record));
      continue;
    }
    if (!is_damage(record.status())) return record.status();
    if (record.status().code() != Code::kNotFound) {
      notes->push_back("removed without being read: " + record.status().to_string());
    }
  }
  return records;
}

}  // namespace deltawire
