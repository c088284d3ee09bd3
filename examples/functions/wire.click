// Every frame passes, unchanged.
FromPort(inside) -> out :: Counter -> ToPort(outside);
FromPort(outside) -> in :: Counter -> ToPort(inside);
