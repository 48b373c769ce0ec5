/* The exporters of exporters.def: each writes a whole file into a sink. Called by exporter.c alone, on any thread. */
#ifndef ENI_PRESENT_EXPORTER_H
#define ENI_PRESENT_EXPORTER_H

#include "base/sink.h"
#include "store/profile.h"

/* Write errors stick in the sink, whose owner reports them; what is returned is what else went wrong. */
typedef enigma_status (*eni_export_fn)(const enigma_profile *profile, eni_sink *sink);

#define ENI_EXPORTER(id, method, suffix, help)                                                                         \
    enigma_status eni_export_##id(const enigma_profile *profile, eni_sink *sink);
#include "present/exporters.def"
#undef ENI_EXPORTER

#endif
