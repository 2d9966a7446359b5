// The two halves of fsck: records and objects, then what they decode to.
#include "chain/fsck.h"

#include <utility>

#include "chain/keys.h"
#include "deltawire/maintain.h"
#include "maintain/check_states.h"

namespace deltawire {

Result<FsckReport> fsck_chain(const Chain& chain, const FsckOptions& options) {
  // Without keys to trust, signatures must still hold, whoever made them.
  const Chain strict = keys_of(chain).trust
                           ? chain
                           : with_other_keys(chain, {.sign = {}, .trust = check_signatures_only()});
  const WorkOptions& work = options.work;
  DW_ASSIGN_OR_RETURN(FsckReport report,
                      check_chain(strict, {!options.quick, work.threads, work.progress}));
  if (options.quick) return report;
  DW_ASSIGN_OR_RETURN(const StateCheckReport decoded, check_states(strict, work));
  report.num_decoded = decoded.num_versions;
  report.problems.insert(report.problems.end(), decoded.problems.begin(), decoded.problems.end());
  return report;
}

}  // namespace deltawire
