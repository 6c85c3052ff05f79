"""The provider `fluxburst`: machines of plugins that were written for flux-burst."""
