// The Python module.
#include "bindings.hpp"

NB_MODULE(_native, m) {
    m.def("hold", &uq::hold, uq::nb::arg("begin"));
    uq::define_scores(m);
    uq::define_units(m);
    uq::define_sums(m);
    uq::define_resamples(m);
}
