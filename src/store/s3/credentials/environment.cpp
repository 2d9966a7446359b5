// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN.
#include "store/s3/credentials/provider.h"

namespace deltawire::s3 {

Result<Offer> ask_environment(const Asking&) {
  const Keys keys{
      {environment_variable("AWS_ACCESS_KEY_ID"), environment_variable("AWS_SECRET_ACCESS_KEY"),
       environment_variable("AWS_SESSION_TOKEN")},
      {},
      {}};
  const Credentials& given = keys.credentials;
  if (given.access_key.empty() && given.secret_key.empty()) {
    return nothing("AWS_ACCESS_KEY_ID is not set");
  }
  if (given.access_key.empty() || given.secret_key.empty()) {
    return invalid_argument("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY must both be set");
  }
  DW_RETURN_IF_ERROR(check_header_text("AWS_ACCESS_KEY_ID", given.access_key));
  DW_RETURN_IF_ERROR(check_header_text("AWS_SECRET_ACCESS_KEY", given.secret_key));
  DW_RETURN_IF_ERROR(check_header_text("AWS_SESSION_TOKEN", given.session_token));
  return offer_of(keys);
}

}  // namespace deltawire::s3
