// What Python code that the library called (a store, say) has raised. The library knows a Status
// only; here the exception itself waits until that Status comes back to Python and can name it as
// its cause.
#pragma once

#include <nanobind/nanobind.h>

#include "deltawire/status.h"

namespace deltawire::python {

namespace nb = nanobind;

// Notes the exception and says what Status it is. With the GIL.
Status note_raised(nb::handle exception);
// The last exception noted with its code, if it is what `status` tells of. With the GIL.
nb::object raised_behind(const Status& status);
// When a call has ended well: an exception holds on to the frames that it came through.
void forget_raised() noexcept;

}  // namespace deltawire::python
