"""What tests are made with: real servers, agents and clusters, and worlds on a virtual clock."""
